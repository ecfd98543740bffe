"""Checks of drafts: how likely this member finds each, and what it would write in its place.

Used by `engine.py`. A place to check is like one more row of the batch: its logits follow those
of the rows, rules and sampling treat all alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from tokenrouter.ipc.messages import Logprob
from tokenrouter.schedulers.base import Check
from tokenrouter.subserver.engine import Checked, Work
from tokenrouter.subserver.sglang_compat.judging import Judging
from tokenrouter.subserver.sglang_compat.logprobs import Report
from tokenrouter.subserver.sglang_compat.rules import Place


def places_to_check(work: Sequence[Work]) -> list[Place]:
    """Where the drafts are that a step of ``work`` checks, in the order of their logits."""
    found: list[Place] = []
    for visit, n in work:
        if visit.unchecked:
            for position in visit.to_check(n):
                found.append(Place(len(work) + len(found), visit, position))
    return found


class Drafts:
    """The drafts at ``places``. Made before rules and sampling change the logits; asked afterwards.

    ``logits``: raw, of the batch's rows and then of the places, ``[rows + places, vocabulary]``.
    """

    def __init__(self, places: Sequence[Place], logits: torch.Tensor) -> None:
        self._places = places
        if not places:
            return
        raw = logits[-len(places) :].float()
        drafts = [place.visit.tokens[place.length] for place in places]
        self._drafts = torch.tensor(drafts, device=raw.device)
        of_drafts = raw.gather(1, self._drafts.unsqueeze(1)).squeeze(1)
        self._probabilities = (of_drafts - raw.logsumexp(dim=-1)).exp().clamp(max=1.0)

    def checks(
        self,
        work: Sequence[Work],
        tokens: torch.Tensor,
        report: Report,
        logprobs: dict[int, Logprob],
        judging: Judging,
    ) -> dict[int, list[Checked]]:
        """By row of the batch. ``tokens``: drawn after each row and at each place.

        ``logprobs``: what ``report`` says of them; those of places are taken out. ``judging``
        has drawn some of them.
        """
        if not self._places:
            return {}
        rows = len(work)
        of_drafts = report.of(torch.cat([tokens[:rows], self._drafts]))
        told = (
            (of_drafts[row], logprobs.pop(row)) if row in of_drafts else None
            for row in range(rows, rows + len(self._places))
        )
        accepted = tokens[rows:] == self._drafts
        judging.decide(accepted, rows)
        checked = map(Checked, self._verdicts(tokens[rows:], accepted), told)
        return {
            row: [next(checked) for _ in positions]
            for row, (visit, n) in enumerate(work)
            if (positions := visit.to_check(n))
        }

    def _verdicts(self, tokens: torch.Tensor, accepted: torch.Tensor) -> Iterator[Check]:
        """Of every place, brought to the host in one transfer."""
        columns = (tokens.double(), self._probabilities.double(), accepted.double())
        for token, probability, stays in torch.stack(columns, dim=1).tolist():
            yield Check(int(token), probability, stays > 0)
