"""Who draws which token of a step: SGLang's sampler, or one of the draws of this package.

Used by `engine.py`. Rows and places to check (`checks.py`) are drawn alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from tokenrouter.schedulers.signals import Signal
from tokenrouter.subserver.engine import Work
from tokenrouter.subserver.sglang_compat.judging import Judging
from tokenrouter.subserver.sglang_compat.proposals import Drafting
from tokenrouter.subserver.sglang_compat.rules import Asking, Place
from tokenrouter.subserver.sglang_compat.sampling import GREEDY, Draw
from tokenrouter.subserver.sglang_compat.seeded import Drawn, draw_seeded, is_seeded


class Drawing:
    """The draws of one step.

    ``asking``: where more rules than temperature and limits hold. ``by_sampler``: how SGLang's
    sampler draws, of rows and then of ``places``; what it gives counts where nobody else draws
    (``elsewhere``: somebody does).
    ``judging`` decides which drafts stay.
    """

    def __init__(
        self, work: Sequence[Work], places: Sequence[Place], signals: Sequence[Signal]
    ) -> None:
        self.asking = _asking(work, places)
        self.judging = Judging(places)
        self._drafting = Drafting(work, signals)
        taken = {*self._drafting.rows, *self.judging.rows}
        self._seeded = [p for p in self.asking if is_seeded(p.visit) and p.row not in taken]
        taken.update(place.row for place in self._seeded)
        self.elsewhere = bool(taken)
        self.by_sampler = tuple(_draws(work, places, taken))
        self._drawn: list[Drawn] = []

    def see(self, logits: torch.Tensor) -> None:
        """Look at the raw ones, ``[rows + places, vocabulary]``, before rules change them."""
        self._drafting.see(logits)
        self.judging.see(logits)

    def draw(self, logits: torch.Tensor) -> None:
        """Draw what SGLang does not, from adjusted logits, which its sampler overwrites."""
        draws = (
            draw_seeded(logits, self._seeded),
            self._drafting.draw(logits),
            self.judging.draw(logits),
        )
        self._drawn = [drawn for drawn in draws if drawn]

    def put(self, tokens: torch.Tensor) -> None:
        """Enter what was drawn here into the sampler's ``tokens``."""
        for drawn in self._drawn:
            tokens[drawn.rows] = drawn.tokens

    def proposals(self, rows: int) -> Mapping[Signal, Sequence[Any]]:
        """The laws of drafts, by row, as signals."""
        return self._drafting.values(rows)


def _asking(work: Sequence[Work], places: Sequence[Place]) -> Asking:
    """Where a token is drawn by more rules than temperature and limits."""
    asking = [place for place in places if place.visit.handle.rules is not None]
    asking += [
        Place(row, visit, visit.length)
        for row, (visit, n) in enumerate(work)
        if visit.handle.rules is not None and visit.pending == n and not visit.scratch
    ]
    return asking


def _draws(work: Sequence[Work], places: Sequence[Place], elsewhere: Collection[int]) -> list[Draw]:
    """How SGLang draws, of rows and then at places.

    What a row draws while it has tokens left to feed does not count, nor what rows in
    ``elsewhere`` do, which are drawn there: the cheapest way.
    """
    draws = [
        visit.handle.draw
        if len(visit.tokens) - visit.computed == n and not visit.scratch
        else GREEDY
        for visit, n in work
    ]
    draws += [place.visit.handle.draw for place in places]
    for row in elsewhere:
        draws[row] = GREEDY
    return draws
