"""Where the requests of a completed batch go: multinomial outcomes, for `chain.py`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb, exp, lgamma, log

import numpy
from numpy.typing import NDArray

from tokenrouter.throughput_model.compiled import compiled
from tokenrouter.throughput_model.parameters import Floats, System

Ints = NDArray[numpy.int32]


@dataclass(frozen=True, eq=False, slots=True)
class Outcomes:
    """Where the requests of a batch may go: rows first[m, b]:first[m, b] + rows[m, b].

    ``moves`` (rows, M): requests that go to each model; ``odds`` (rows,): how likely.
    """

    first: NDArray[numpy.int64]
    rows: NDArray[numpy.int64]
    moves: Ints
    odds: Floats


@lru_cache(maxsize=8)
def outcomes_of(system: System, concurrency: int, max_rows: int) -> Outcomes:
    """Multinomial outcomes of every batch size of every model.

    Batches with more than ``max_rows`` of them get none: a state that completes one has as many
    successors.
    """
    shape = (system.size, concurrency + 1)
    first, rows = numpy.zeros(shape, numpy.int64), numpy.zeros(shape, numpy.int64)
    moves, odds = [numpy.zeros((0, system.size), numpy.int32)], [numpy.zeros(0)]
    total = 0
    for model in range(system.size):
        choices = numpy.flatnonzero(system.routing[model])
        shares = system.routing[model, choices] / system.routing[model, choices].sum()
        for batch in range(1, system.limit(model, concurrency) + 1):
            count = comb(batch + len(choices) - 1, len(choices) - 1)
            if count > max_rows:
                break
            split, probability = _splits(batch, count, shares)
            spread = numpy.zeros((count, system.size), numpy.int32)
            spread[:, choices] = split
            happens = probability > 0  # others are too rare for a float
            moves.append(spread[happens])
            odds.append(probability[happens] / probability.sum())
            first[model, batch], rows[model, batch] = total, happens.sum()
            total += int(happens.sum())
    return Outcomes(first, rows, numpy.concatenate(moves), numpy.concatenate(odds))


@compiled
def _splits(batch: int, count: int, shares: Floats) -> tuple[Ints, Floats]:
    """The ``count`` ways to split a batch over choices, and their multinomial probabilities."""
    choices = len(shares)
    splits = numpy.zeros((count, choices), numpy.int32)
    odds = numpy.empty(count)
    split = numpy.zeros(choices, numpy.int32)
    split[0] = batch
    for row in range(count):
        splits[row] = split
        exponent = lgamma(batch + 1.0)
        for choice in range(choices):
            exponent += split[choice] * log(shares[choice]) - lgamma(split[choice] + 1.0)
        odds[row] = exp(exponent)
        if row + 1 < count:
            place = 0
            while split[place] == 0:
                place += 1
            left = split[place] - 1
            split[place] = 0
            split[0] = left
            split[place + 1] += 1
    return splits, odds
