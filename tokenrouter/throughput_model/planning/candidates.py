"""Which threshold vectors a plan looks at: those given, all, or what a search tried."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.parameters import System, Thresholds
from tokenrouter.throughput_model.planning.outlook import lockstep, ones
from tokenrouter.throughput_model.search.search import best, feasible

EVERY = 200
"""Feasible vectors at a concurrency, up to which all are looked at."""
TRIED = 40
"""Where there are more: how many of those that the search tried, from the best on."""
BETWEEN = 100
"""And how many from thresholds of 1 to the best ones, at most."""
MOST_PARTS = 8
"""Parts of the way between them, at most."""


def candidates(
    system: System, concurrency: int, given: Sequence[Thresholds] = (), seed: int = 0
) -> list[Thresholds]:
    """The vectors to look at, in order; with ``given`` ones, those of them that are feasible."""
    if given:
        without = left_out(system, concurrency, given)
        return [each for each in given if each not in without]
    if count(system, concurrency) <= EVERY:
        return list(feasible(system, concurrency))
    found = best(system, concurrency, seed=seed)
    tried = sorted(found.tried, key=lambda each: -each.tokens_per_s)[:TRIED]
    vectors = {found.best.thresholds, ones(system), lockstep(system, concurrency)}
    vectors |= {each.thresholds for each in tried}
    return sorted(vectors | between(found.best.thresholds))


def between(top: Thresholds) -> set[Thresholds]:
    """Vectors spread evenly from 1 to each of ``top``: slower ones, with shorter gaps.

    Of many models, all rise together.
    """
    counts = range(MOST_PARTS, 0, -1)
    parts = next((each for each in counts if (each + 1) ** len(top) <= BETWEEN), 0)
    if not parts:
        shares = (part / MOST_PARTS for part in range(MOST_PARTS + 1))
        return {tuple(1 + round((each - 1) * share) for each in top) for share in shares}
    each_model = [
        {1 + round((threshold - 1) * part / parts) for part in range(parts + 1)}
        for threshold in top
    ]
    return set(itertools.product(*each_model))


def count(system: System, concurrency: int) -> int:
    """How many vectors are feasible: sum(theta - 1) < N, each at most its largest batch."""
    ways = numpy.zeros(concurrency, dtype=object)  # of each sum; integers without bound
    ways[0] = 1
    for model in range(system.size):
        sums = ways.cumsum()
        limit = system.limit(model, concurrency)
        ways = sums - numpy.concatenate([numpy.zeros(limit, dtype=object), sums[:-limit]])
    return int(ways.sum())


def left_out(
    system: System, concurrency: int, given: Sequence[Thresholds]
) -> dict[Thresholds, str]:
    """Those of the ``given`` vectors that are not feasible, and why."""
    problems = {}
    for each in given:
        try:
            system.check(concurrency, each)
        except ConfigError as error:
            problems[each] = str(error).removeprefix("thresholds: ")
    return problems
