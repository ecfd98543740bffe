"""Thresholds for every number of live requests, as `ipc.operations.Plan` wants them.

Members count live requests each for itself and may differ for a moment, so no threshold may be
higher for fewer requests. The best vectors of neighbouring numbers seldom agree to that: the
table takes the sequence of good vectors that agrees and loses least.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.count_simulation.beginnings import worse
from tokenrouter.throughput_model.count_simulation.simulate import Simulation
from tokenrouter.throughput_model.parameters import Prediction, System, Thresholds
from tokenrouter.throughput_model.search.rounds import (
    QUICK,
    THOROUGH,
    Draws,
    finalists,
    noise,
    prefer_low,
)
from tokenrouter.throughput_model.search.space import Space, clamped

DENSE = 16
"""Every number of requests up to here is solved; above, numbers that grow by ``RATIO``."""
RATIO = 2**0.5
CROSS = 10_000
"""Events for vectors that are good for another number of requests."""

Values = dict[Thresholds, float]
"""Of the candidates for one number of requests: log of how much faster than its lowest."""


def table(
    system: System,
    largest: int,
    at: int | None = None,
    fixed: Mapping[int, int] | None = None,
    previous: Sequence[Thresholds] = (),
    seed: int = 0,
    margin: float = 0.002,
) -> list[Thresholds]:
    """Thresholds for 1, 2, ..., ``largest`` live requests; row A - 1 for A.

    No row can deadlock its number of requests, and none is above a later one in any column.

    Args:
        at: the number that is served now: its row is its best, the others adapt to it, the
            nearest best (None: all numbers count alike).
        fixed: thresholds of some models, by index, that are not to change; where they could
            deadlock few requests, they are lower (`space.clamped`).
        previous: an earlier table: where to look as well.
        margin: gain over the lowest thresholds that others must bring, as a share.

    Raises:
        ConfigError: ``largest`` or ``at`` is out of range.
    """
    if largest < 1 or not 1 <= (at or 1) <= largest:
        raise ConfigError(f"largest: must be at least 1 and at least the {at} of now, is {largest}")
    draws = Draws.draw(system, largest, THOROUGH, seed)
    numbers = _numbers(system, largest, at, fixed or {})
    spaces = {live: clamped(system, live, fixed) for live in numbers}
    old = {live: previous[min(live, len(previous)) - 1 :][:1] for live in numbers}
    found: dict[int, list[Prediction]] = {}
    if at is not None:
        found[at] = finalists(system, at, spaces[at], THOROUGH, draws, old[at], seed)
        best = prefer_low(found[at], low := spaces[at].low, margin)
        if best.thresholds != low:
            found[at] = [best]
            spaces = {live: _beside(own, live, at, best) for live, own in spaces.items()}
    for live in numbers:
        if live not in found:
            near = [each.thresholds for each in next(reversed(found.values()), [])[:2]]
            hints = [*near, *old[live]]
            found[live] = finalists(system, live, spaces[live], QUICK, draws, hints, seed)
    shared = {each[0].thresholds for each in found.values()}.union(*old.values())
    values = []
    for live in numbers:
        new = {spaces[live].clip(each) for each in shared}
        new -= {each.thresholds for each in found[live]}
        simulation = Simulation(system, live, draws.judge)
        events = CROSS if live != at else THOROUGH.rounds[-1][1]
        candidates = found[live] + worse(simulation, sorted(new), events)
        values.append(_values(candidates, margin, None if at is None else live / at))
    return list(_between(numbers, _monotone(values)))


def _numbers(system: System, largest: int, at: int | None, fixed: Mapping[int, int]) -> list[int]:
    """Numbers of requests that are solved, in order; the others lie between."""
    numbers = {*range(1, min(DENSE, largest) + 1), largest, at or largest}
    numbers.update(
        round(DENSE * RATIO**power)
        for power in range(1, math.ceil(math.log(max(largest, DENSE) / DENSE, RATIO)))
    )
    enough = sum(system.limit(index, each) - 1 for index, each in fixed.items()) + 1
    return sorted(numbers | {min(enough, largest)})  # from `enough` on, fixed ones are whole


def _beside(space: Space, live: int, at: int, best: Prediction) -> Space:
    """What of a space agrees with the ``best`` for ``at`` requests."""
    high = tuple(map(min, space.high, best.thresholds)) if live <= at else space.high
    low = tuple(map(max, space.low, best.thresholds)) if live >= at else space.low
    return Space(low, high, space.spare - sum(low) + sum(space.low))


def _values(found: Sequence[Prediction], margin: float, distance: float | None) -> Values:
    """Weighed by the ``distance`` from what is served now (a ratio; None: all alike).

    A gain that is not worth it counts as none; for what is served now, a loss is out of the
    question.
    """
    low = min(found, key=lambda each: each.thresholds)
    values = {}
    for each in found:
        gain = each.tokens_per_s / low.tokens_per_s - 1
        chance = noise(each, low) / low.tokens_per_s
        worth = math.log1p(gain) if gain > max(margin, chance) else min(gain, 0.0)
        if distance != 1 or gain >= -chance:
            weight = 1 / (1 + abs(math.log2(distance or 1)))
            values[each.thresholds] = weight * worth
    return values


def _monotone(values: Sequence[Values]) -> list[Thresholds]:
    """One candidate of each, never falling in any element, whose values add up to most.

    Of equals, the lower.
    """
    paths: dict[Thresholds, tuple[float, list[Thresholds]]] = {}
    for position, here in enumerate(values):
        longer: dict[Thresholds, tuple[float, list[Thresholds]]] = {}
        for vector, value in sorted(here.items()):
            before = [
                path
                for last, path in paths.items()
                if all(a <= b for a, b in zip(last, vector, strict=True))
            ]
            if before or not position:
                total, rows = max(before, key=lambda path: path[0], default=(0.0, []))
                longer[vector] = (total + value, [*rows, vector])
        paths = longer
    return max(paths.values(), key=lambda path: path[0])[1]


def _between(numbers: Sequence[int], rows: Sequence[Thresholds]) -> Iterator[Thresholds]:
    """All rows from the solved ones: linear between two, rounded down.

    That keeps them monotone, and feasible, as the limit grows linearly.
    """
    for (here, row), (there, after) in itertools.pairwise(zip(numbers, rows, strict=True)):
        for live in range(here, there):
            share = live - here
            yield tuple(
                a + (b - a) * share // (there - here) for a, b in zip(row, after, strict=True)
            )
    yield rows[-1]
