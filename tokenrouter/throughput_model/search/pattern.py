"""Pattern search over threshold vectors.

Throughput has many local maxima over thresholds, so searches start in many places and take
long steps before short ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy

from tokenrouter.throughput_model.parameters import Floats, Thresholds
from tokenrouter.throughput_model.search.space import Space

Score = Callable[[Sequence[Thresholds]], Floats]
"""Of many vectors at once; higher is better."""


class Scores:
    """What vectors scored; none is scored twice."""

    def __init__(self, score: Score) -> None:
        self._score = score
        self.known: dict[Thresholds, float] = {}

    def add(self, vectors: Iterable[Thresholds]) -> None:
        """Score those that are new."""
        if fresh := sorted(set(vectors) - self.known.keys()):
            self.known.update(zip(fresh, self._score(fresh).tolist(), strict=True))

    def best(self, count: int, among: Iterable[Thresholds] | None = None) -> list[Thresholds]:
        """The ``count`` best, of all or of those given, best first."""
        pool = self.known if among is None else set(among)
        return sorted(pool, key=lambda each: (-self.known[each], each))[:count]


def climb(space: Space, scores: Scores, starts: Iterable[Thresholds]) -> None:
    """Move every start to its best neighbour until none is better, in ever shorter steps.

    Steps shrink from a quarter of the widest range to 1. All climbers of a round are scored
    in one call; those that meet go on as one.
    """
    widest = max(high - low for low, high in zip(space.low, space.high, strict=True))
    step = max(1, min(widest, space.spare) // 4)
    climbers = set(starts)
    scores.add(climbers)
    while step:
        settled: set[Thresholds] = set()
        while climbers:
            around = {each: space.neighbours(each, step) | {each} for each in climbers}
            scores.add(set().union(*around.values()))
            ends = {each: scores.best(1, near)[0] for each, near in around.items()}
            settled |= {each for each, end in ends.items() if each == end}
            climbers = set(ends.values()) - around.keys() - settled
        climbers = settled
        step //= 2


def starts(space: Space, generator: numpy.random.Generator, random: int) -> list[Thresholds]:
    """Where to begin: the lowest vector, one model alone high, all shared out, random ones."""
    lonely = [
        space.clip(
            low + (space.spare // part if index == model else 0)
            for index, low in enumerate(space.low)
        )
        for model in range(len(space.low))
        for part in (1, 2, 4)
    ]
    even = space.clip(low + space.spare // len(space.low) for low in space.low)
    return list(dict.fromkeys([space.low, *lonely, even, *space.random(random, generator)]))
