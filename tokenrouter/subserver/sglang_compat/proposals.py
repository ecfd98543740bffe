"""Drafted tokens, drawn from a law that is short enough to travel: `signals.Proposals`.

Used by `engine.py`, for the rows of a batch whose visits ask for the signal.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy
import torch

from tokenrouter.schedulers.base import Proposal
from tokenrouter.schedulers.signals import Proposals, Signal
from tokenrouter.subserver.engine import Visit, Work
from tokenrouter.subserver.sglang_compat.inversion import pick
from tokenrouter.subserver.sglang_compat.rules import Place
from tokenrouter.subserver.sglang_compat.seeded import Drawn, is_seeded, likeliest, uniform


class Drafting:
    """The drafts of one step. ``rows``: those that draft."""

    def __init__(self, work: Sequence[Work], signals: Sequence[Signal]) -> None:
        self._signals = [signal for signal in signals if isinstance(signal, Proposals)]
        self._places: list[Place] = []
        if self._signals:
            self._places = [
                Place(row, visit, visit.length)
                for row, (visit, n) in enumerate(work)
                if visit.pending == n and not visit.scratch and _k(visit)
            ]
        self.rows = [place.row for place in self._places]
        self._told: dict[int, Proposal] = {}

    def see(self, logits: torch.Tensor) -> None:
        """Look at the raw ones, ``[rows, vocabulary]``, before rules change them."""
        if self.rows:
            self._index = torch.tensor(self.rows, device=logits.device)
            self._raw = torch.softmax(logits[self._index], dim=-1)

    def draw(self, logits: torch.Tensor) -> Drawn | None:
        """The drafts, from adjusted logits."""
        if not self.rows:
            return None
        visits = [place.visit for place in self._places]
        counts = [_k(visit) for visit in visits]
        draws = [visit.handle.draw for visit in visits]
        ids, law = likeliest(logits[self._index], draws, max(counts))
        if min(counts) < max(counts):
            law = _shortened(law, counts)
        # As float32, as which they travel: drafts must follow the very law that is told.
        law = law / law.sum(dim=-1, keepdim=True)
        place = pick(law, _uniforms(self._places, logits.device)).unsqueeze(1)
        self._tell(ids, law)
        return Drawn(self._index, ids.gather(1, place).squeeze(1))

    def values(self, rows: int) -> Mapping[Signal, Sequence[Proposal | None]]:
        """Of the signals, by row, once drafts are drawn."""
        return {signal: [self._told.get(row) for row in range(rows)] for signal in self._signals}

    def _tell(self, ids: torch.Tensor, law: torch.Tensor) -> None:
        columns = [ids, law, self._raw.gather(1, ids), self._raw.amax(dim=-1, keepdim=True)]
        # One transfer; float64 holds ids and float32 values exactly.
        table = torch.cat([column.double() for column in columns], dim=1).cpu().numpy()
        width = ids.shape[1]
        for row, line in zip(self.rows, table, strict=True):
            possible = line[width : 2 * width] > 0
            ours, probabilities, raw = line[:-1].reshape(3, width)[:, possible]
            self._told[row] = Proposal(
                array("I", ours.astype(numpy.uint32).tobytes()),
                array("f", probabilities.astype(numpy.float32).tobytes()),
                array("f", raw.astype(numpy.float32).tobytes()),
                float(line[-1]),
            )


def _k(visit: Visit) -> int:
    """How many ids the visit's drafts are drawn from; 0: it asks for no proposals."""
    return next((each.k for each in visit.signals if isinstance(each, Proposals)), 0)


def _shortened(law: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
    """What each row's ``counts`` likeliest ids have of it."""
    order = law.argsort(dim=-1, descending=True, stable=True)
    places = torch.arange(law.shape[-1], device=law.device).expand_as(law)
    ranks = torch.empty_like(order).scatter_(1, order, places)
    limit = torch.tensor(counts, device=law.device).unsqueeze(1)
    return law.where(ranks < limit, 0.0)


def _uniforms(places: Sequence[Place], device: torch.device) -> torch.Tensor:
    """Of the seed, where there is one, else of the engine's generator."""
    numbers = torch.rand(len(places), dtype=torch.float64, device=device)
    seeded = [i for i, place in enumerate(places) if is_seeded(place.visit)]
    if seeded:
        known = [uniform(places[i]) for i in seeded]
        numbers[seeded] = torch.tensor(known, dtype=torch.float64, device=device)
    return numbers
