"""The threshold vectors among which `search` looks: those that N requests cannot deadlock."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.parameters import System, Thresholds


@dataclass(frozen=True, slots=True)
class Space:
    """Vectors from ``low`` to ``high``, elementwise, that add at most ``spare`` to ``low``."""

    low: Thresholds
    high: Thresholds
    spare: int

    def __contains__(self, vector: Thresholds) -> bool:
        inside = all(
            low <= each <= high for low, each, high in zip(self.low, vector, self.high, strict=True)
        )
        return inside and sum(vector) - sum(self.low) <= self.spare

    def __iter__(self) -> Iterator[Thresholds]:
        """All of them, in lexicographic order."""

        def extend(start: Thresholds, spare: int) -> Iterator[Thresholds]:
            if (index := len(start)) == len(self.low):
                yield start
                return
            low = self.low[index]
            for each in range(low, min(self.high[index], low + spare) + 1):
                yield from extend((*start, each), spare - each + low)

        return extend((), self.spare)

    def some(self, most: int) -> list[Thresholds] | None:
        """All of them, unless there are more than ``most``."""
        found = list(itertools.islice(self, most + 1))
        return found if len(found) <= most else None

    def clip(self, vector: Iterable[int]) -> Thresholds:
        """The vector inside the bounds; what it adds is scaled down (floor) to ``spare``."""
        added = [
            min(max(each, low), high) - low
            for low, each, high in zip(self.low, vector, self.high, strict=True)
        ]
        if (total := sum(added)) > self.spare:
            added = [each * self.spare // total for each in added]
        return tuple(low + each for low, each in zip(self.low, added, strict=True))

    def neighbours(self, vector: Thresholds, step: int) -> set[Thresholds]:
        """One coordinate up or down by ``step``, or one up and another down by as much.

        A step that would leave the space ends at its edge.
        """
        room = self.spare - sum(vector) + sum(self.low)
        found: set[Thresholds] = set()
        for index, value in enumerate(vector):
            rise = min(step, self.high[index] - value)
            fall = min(step, value - self.low[index])
            found.add(_moved(vector, {index: min(rise, room)}))
            found.add(_moved(vector, {index: -fall}))
            for other, given in enumerate(vector):
                if other != index and (swap := min(rise, step, given - self.low[other])):
                    found.add(_moved(vector, {index: swap, other: -swap}))
        return found - {vector}

    def random(self, count: int, generator: numpy.random.Generator) -> list[Thresholds]:
        """Vectors anywhere in the space; small thresholds as likely as large ones."""
        shares = generator.dirichlet(numpy.full(len(self.low) + 1, 0.5), size=count)[:, :-1]
        scale = self.spare ** generator.random((count, 1))
        return [self.clip((self.low + row).astype(int).tolist()) for row in shares * scale]


def space(system: System, concurrency: int, fixed: Mapping[int, int] | None = None) -> Space:
    """All vectors for N = ``concurrency`` in which the models in ``fixed`` keep theirs.

    Raises:
        ConfigError: the fixed ones are illegal or can deadlock N requests.
    """
    pins = dict(fixed or {})
    if unknown := sorted(set(pins) - set(range(system.size))):
        raise ConfigError(f"fixed: there is no model {unknown[0]}; models count from 0")
    low = system.check(concurrency, [pins.get(index, 1) for index in range(system.size)])
    high = tuple(pins.get(index, system.limit(index, concurrency)) for index in range(system.size))
    return Space(low, high, concurrency - 1 - sum(low) + system.size)


def clamped(system: System, live: int, fixed: Mapping[int, int] | None = None) -> Space:
    """`space` for ``live`` requests, however few: fixed thresholds too high for them shrink.

    As long as these shrink, all others are 1; both only ever grow with ``live``.
    """
    pins = {index: min(each, system.limit(index, each)) for index, each in (fixed or {}).items()}
    wanted = sum(pins.values()) - len(pins)
    if wanted < live:
        return space(system, live, pins)
    shrunk = {index: 1 + (each - 1) * (live - 1) // wanted for index, each in pins.items()}
    low = tuple(shrunk.get(index, 1) for index in range(system.size))
    return Space(low, low, 0)


def _moved(vector: Thresholds, moves: Mapping[int, int]) -> Thresholds:
    return tuple(each + moves.get(index, 0) for index, each in enumerate(vector))
