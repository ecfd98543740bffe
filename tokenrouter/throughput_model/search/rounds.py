"""From many threshold vectors to a few: cheap short runs first, long ones for who is left."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy

from tokenrouter.throughput_model.count_simulation.beginnings import scattered, worse
from tokenrouter.throughput_model.count_simulation.simulate import Simulation
from tokenrouter.throughput_model.count_simulation.tapes import Tapes, tapes_for
from tokenrouter.throughput_model.parameters import Floats, Prediction, System, Thresholds
from tokenrouter.throughput_model.search import pattern
from tokenrouter.throughput_model.search.space import Space


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to look.

    Spaces of up to ``exhaustive`` vectors are scored whole, larger ones by ``climbers`` that
    start at the best of some fixed and ``random`` places, and as many at random ones.
    ``rounds``: (vectors, events) from the first score on; the last gives the predictions.
    """

    exhaustive: int
    climbers: int
    random: int
    rounds: tuple[tuple[int, int], ...]


THOROUGH = Effort(500, 10, 300, ((0, 4000), (48, 16_000), (12, 100_000)))
QUICK = Effort(200, 3, 24, ((0, 2500), (16, 10_000), (5, 40_000)))
PLATEAU = 0.002
"""Rates that differ by no more than this share are about as good."""


@dataclass(frozen=True, eq=False, slots=True)
class Draws:
    """Two sets of tapes: one to search on, one to judge on what was found."""

    search: Tapes
    judge: Tapes

    @classmethod
    def draw(cls, system: System, concurrency: int, effort: Effort, seed: int) -> Draws:
        """For up to N = ``concurrency`` requests."""
        (_, first), *_, (_, last) = effort.rounds
        return cls(
            tapes_for(system, concurrency, 4 * first, 2 * seed),
            tapes_for(system, concurrency, last, 2 * seed + 1),
        )


def finalists(
    system: System,
    concurrency: int,
    space: Space,
    effort: Effort,
    draws: Draws,
    hints: Iterable[Thresholds] = (),
    seed: int = 0,
) -> list[Prediction]:
    """Predictions of the best vectors and of the lowest, best first.

    Each is of the beginning from which the vector gives less (`beginnings.worse`).
    ``hints``: where else to begin.
    """
    short = Simulation(system, concurrency, draws.search)
    (_, first), *later = effort.rounds

    even = scattered(short)[0]

    def score(vectors: Sequence[Thresholds]) -> Floats:
        return short.run(vectors, first, even).tokens_per_s

    scores = pattern.Scores(score)
    if (everything := space.some(effort.exhaustive)) is not None:
        scores.add(everything)
    else:
        generator = numpy.random.default_rng(seed)
        begin = [space.clip(each) for each in hints]
        places = pattern.starts(space, generator, effort.random)
        scores.add([*begin, *places])
        first_best = scores.best(effort.climbers)
        pattern.climb(space, scores, [*begin, *first_best, *places[-effort.climbers :]])
    rates = scores.known
    long = Simulation(system, concurrency, draws.judge)
    found: list[Prediction] = []
    for count, events in later:
        found = worse(long, [*_spread(rates, count, space.low)], events)
        rates = {each.thresholds: each.tokens_per_s for each in found}
    return sorted(found, key=lambda each: -each.tokens_per_s)


def _spread(rates: Mapping[Thresholds, float], count: int, low: Thresholds) -> set[Thresholds]:
    """``low``, and about ``count`` others: the best, and some all over those about as good.

    Many vectors of a plateau give the very same rate, and its edge is no better than its middle.
    """
    best = sorted(rates, key=lambda each: (-rates[each], each))
    plateau = sorted(each for each in best if rates[each] > (1 - PLATEAU) * rates[best[0]])
    half = count // 2
    return {low, *best[: count - half], *plateau[:: max(1, len(plateau) // half)]}


def noise(one: Prediction, other: Prediction) -> float:
    """Tokens a second that two predictions may differ by chance: three standard errors."""
    return 3 * math.hypot(one.stderr, other.stderr)


def prefer_low(found: Sequence[Prediction], low: Thresholds, margin: float) -> Prediction:
    """The first of predictions; ``low`` unless its gain over that is more than chance.

    It must also be more than ``margin``, a share of what ``low`` gives.
    """
    best = found[0]
    lowest = next(each for each in found if each.thresholds == low)
    gain = best.tokens_per_s - lowest.tokens_per_s
    return best if gain > max(noise(best, lowest), margin * lowest.tokens_per_s) else lowest
