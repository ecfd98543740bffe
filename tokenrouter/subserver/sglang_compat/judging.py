"""Drafts that stay or are replaced at random, by the rule of `signals.Checks`.

Used by `engine.py` and `checks.py`; the laws are `acceptance.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tokenrouter.schedulers.base import Proposal
from tokenrouter.schedulers.signals import Acceptance
from tokenrouter.subserver.sglang_compat.acceptance import Drafted, Judged, Own, drafted, judge
from tokenrouter.subserver.sglang_compat.rules import Place
from tokenrouter.subserver.sglang_compat.sampling import GREEDY
from tokenrouter.subserver.sglang_compat.seeded import (
    ACCEPTANCE,
    REPLACEMENT,
    Drawn,
    is_seeded,
    law_of,
    uniform,
)

AT_ONCE = 64
"""Places whose laws over the whole vocabulary are held at the same time."""


class Judging:
    """The drafts of one step that a rule judges. ``rows``: their rows of the logits.

    A greedy request's drafts under the exact rule need none: they stay where they are what
    this member would write.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._rules = {place.row: rule for place in places if (rule := _rule(place))}
        self._places = [place for place in places if place.row in self._rules]
        self.rows = list(self._rules)

    def see(self, logits: torch.Tensor) -> None:
        """Look at the raw ones, ``[rows, vocabulary]``, before rules change them."""
        if not self.rows:
            return
        self._index = torch.tensor(self.rows, device=logits.device)
        laws = [_proposal(place) for place in self._places]
        self._proposed = drafted(laws, logits.shape[1], logits.device)
        raw = logits[self._index].float()
        norm = raw.logsumexp(dim=-1, keepdim=True).double()
        of_ids = (raw.gather(1, self._proposed.ids).double() - norm).exp()
        self._own = Own((raw.amax(dim=-1, keepdim=True).double() - norm).exp(), of_ids)

    def draw(self, logits: torch.Tensor) -> Drawn | None:
        """What replaces drafts, or would, from adjusted logits."""
        if not self.rows:
            return None
        parts = [self._judge(logits, i) for i in range(0, len(self.rows), AT_ONCE)]
        self._accepted = torch.cat([part.accepted for part in parts])
        return Drawn(self._index, torch.cat([part.tokens for part in parts]))

    def decide(self, accepted: torch.Tensor, first: int) -> None:
        """Put what was judged into ``accepted`` (bool), of all places, from row ``first`` on."""
        if self.rows:
            accepted[self._index - first] = self._accepted

    def _judge(self, logits: torch.Tensor, start: int) -> Judged:
        part = slice(start, start + AT_ONCE)
        places, device = self._places[part], logits.device
        law = law_of(logits[self._index[part]], [place.visit.handle.draw for place in places])
        return judge(
            [self._rules[place.row] for place in places],
            law / law.sum(dim=-1, keepdim=True),
            Own(*(each[part] for each in self._own)),
            torch.tensor([place.visit.tokens[place.length] for place in places], device=device),
            Drafted(*(each[part] for each in self._proposed)),
            _uniforms(places, device),
        )


def _rule(place: Place) -> Acceptance | None:
    check = place.visit.check
    rule = check.rule if check else None
    if rule and rule.kind == "exact" and place.visit.handle.draw == GREEDY:
        return None
    return rule


def _proposal(place: Place) -> Proposal:
    visit = place.visit
    return visit.request.proposals[place.length - visit.first_draft]


def _uniforms(places: Sequence[Place], device: torch.device) -> torch.Tensor:
    """``[places, 2]``: of the seed, where there is one, else of the engine's generator."""
    numbers = torch.rand(len(places), 2, dtype=torch.float64, device=device)
    seeded = [i for i, place in enumerate(places) if is_seeded(place.visit)]
    if seeded:
        known = [[uniform(places[i], use) for use in (ACCEPTANCE, REPLACEMENT)] for i in seeded]
        numbers[seeded] = torch.tensor(known, dtype=torch.float64, device=device)
    return numbers
