"""Who draws which token of a step: SGLang's sampler, or one of the draws of this package.

Used by `engine.py`. Rows and places to check (`checks.py`) are drawn alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        draws, asking = _of_rows(work)
        self.asking: Asking = [p for p in places if p.visit.handle.rules is not None] + asking
        self.judging = Judging(places)
        self._drafting = Drafting(work, signals)
        taken = {*self._drafting.rows, *self.judging.rows}
        self._seeded = [p for p in self.asking if is_seeded(p.visit) and p.row not in taken]
        taken.update(place.row for place in self._seeded)
        self.elsewhere = bool(taken)
        draws += [place.visit.handle.draw for place in places]
        for row in taken:
            draws[row] = GREEDY  # the cheapest way, of one that does not count
        self.by_sampler = tuple(draws)
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


def _of_rows(work: Sequence[Work]) -> tuple[list[Draw], list[Place]]:
    """How each row is drawn, and which rows ask for more rules than that.

    What a row draws while it has tokens left to feed does not count: the cheapest way.
    """
    draws: list[Draw] = []
    asking: list[Place] = []
    for row, (visit, n) in enumerate(work):
        held = visit.handle
        if len(visit.tokens) - visit.computed != n or visit.scratch:
            draws.append(GREEDY)
            continue
        draws.append(held.draw)
        if held.rules is not None:
            asking.append(Place(row, visit, visit.length))
    return draws, asking
