"""The states of a system with given thresholds, and how it moves between them.

From `exact.py`, to which the states go with their transitions. A state is taken just after the
launches that follow a completion: for each model the requests that wait (q), the requests in its
running batch (b, 0 when idle) and the residual time of that batch in whole ticks (r). Time then
advances to the smallest residual; every batch that ends there completes before anything
launches. A completed batch is routed multinomially, and every idle model with q >= theta launches
min(q, limit) requests.

Batches that end together are completed one after the other, through states in which no time
passes (a batch with residual 0 is about to complete); their number grows with the queues, that of
all joint outcomes with a product over the models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, exp, lgamma, log

import numba
import numpy
from numpy.typing import NDArray

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.parameters import Floats, System
from tokenrouter.throughput_model.ticks import in_ticks

Ints = NDArray[numpy.int32]
TOO_MANY, DEADLOCK, COMPLETE = 0, 1, 2


class TooManyStatesError(ConfigError):
    """A chain has more states than it may; simulate the system instead."""


@dataclass(frozen=True, eq=False, slots=True)
class Chain:
    """S reachable states, the start first, and their transitions as compressed sparse rows.

    Args:
        tick_ms: the unit of residuals and of ``wait``.
        queue: (S, M) requests that wait for each model.
        batch: (S, M) requests that each model computes.
        wait: (S,) ticks until the next completion; 0 where another batch has just completed.
        ends: (S,) the model whose batch completes then.
        first: (S + 1,) state i goes to targets[first[i]:first[i + 1]],
        targets: (T,) each a state,
        odds: (T,) with these probabilities.
    """

    tick_ms: float
    queue: Ints
    batch: Ints
    wait: Ints
    ends: Ints
    first: NDArray[numpy.int64]
    targets: Ints
    odds: Floats

    @property
    def size(self) -> int:
        """S, the number of states, those in which no time passes included."""
        return len(self.wait)


@dataclass(frozen=True, eq=False, slots=True)
class Outcomes:
    """Where the requests of a batch may go: rows first[m, b]:first[m, b] + rows[m, b].

    ``moves`` (rows, M): requests that go to each model; ``odds`` (rows,): how likely.
    """

    first: NDArray[numpy.int64]
    rows: NDArray[numpy.int64]
    moves: Ints
    odds: Floats


def explore(system: System, concurrency: int, thresholds: Sequence[int], max_states: int) -> Chain:
    """All states that N = ``concurrency`` requests reach from the queue of model 0.

    Raises:
        TooManyStatesError: there are more than ``max_states``.
        ConfigError: a reachable state is a deadlock, or the tick does not divide a latency.
    """
    tick_ms, ticks = in_ticks(system, concurrency)
    outcomes = _outcomes(system, concurrency, max_states)
    limits = [system.limit(model, concurrency) for model in range(system.size)]
    state, *parts = _explore(
        concurrency,
        numpy.array(thresholds, dtype=numpy.int32),
        numpy.array(limits, dtype=numpy.int32),
        ticks,
        outcomes.first,
        outcomes.rows,
        outcomes.moves,
        outcomes.odds,
        max_states,
    )
    if state == TOO_MANY:
        raise TooManyStatesError(
            f"concurrency: {concurrency} requests with thresholds {list(thresholds)} have more "
            f"than {max_states} states; simulate them, or take a coarser tick_ms"
        )
    if state == DEADLOCK:
        raise ConfigError(
            f"thresholds: {list(thresholds)} deadlock {concurrency} requests; lower some"
        )
    rows, wait, ends, first, targets, odds = parts
    return Chain(tick_ms, rows[:, 0::3], rows[:, 1::3], wait, ends, first, targets, odds)


@lru_cache(maxsize=8)
def _outcomes(system: System, concurrency: int, max_rows: int) -> Outcomes:
    """Multinomial outcomes of every batch size of every model.

    Batches with more than ``max_rows`` of them get none: a state that completes one has as many
    successors.
    """
    shape = (system.size, concurrency + 1)
    first, rows = numpy.zeros(shape, numpy.int64), numpy.zeros(shape, numpy.int64)
    moves, odds, total = [], [], 0
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
            moves.append(spread)
            odds.append(probability / probability.sum())
            first[model, batch], rows[model, batch] = total, count
            total += count
    return Outcomes(first, rows, numpy.concatenate(moves), numpy.concatenate(odds))


@numba.njit(cache=True)
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


@numba.njit(cache=True)
def _launch(state: Ints, thresholds: Ints, limits: Ints, ticks: Ints) -> None:
    """Every idle model with enough requests in its queue starts a batch."""
    for model in range(len(thresholds)):
        queue, batch = state[3 * model], state[3 * model + 1]
        if batch == 0 and queue >= thresholds[model]:
            size = min(queue, limits[model])
            state[3 * model] = queue - size
            state[3 * model + 1] = size
            state[3 * model + 2] = ticks[model, size]


@numba.njit(cache=True)
def _find(state: Ints, rows: Ints, table: Ints) -> numpy.int64:
    """The slot of a hash table that holds the number of a state, or is free for it."""
    key = numpy.uint64(14695981039346656037)
    for each in state:
        key = (key ^ numpy.uint64(each)) * numpy.uint64(1099511628211)
    key ^= key >> numpy.uint64(29)
    mask = len(table) - 1
    slot = numpy.int64(key & numpy.uint64(mask))
    while table[slot] >= 0:
        known = rows[table[slot]]
        same = True
        for place in range(len(state)):
            if known[place] != state[place]:
                same = False
                break
        if same:
            break
        slot = (slot + 1) & mask
    return slot


@numba.njit(cache=True)
def _advance(state: Ints) -> tuple[int, int, bool]:
    """Move to the next completion.

    Returns ticks passed, the model that completes (-1: all are idle), and whether another batch
    completes at the same time.
    """
    ends, wait, together = -1, 0, False
    for model in range(len(state) // 3):
        if state[3 * model + 1] == 0:
            continue
        left = state[3 * model + 2]
        if ends < 0 or left < wait:
            ends, wait, together = model, left, False
        elif left == wait:
            together = True
    for model in range(len(state) // 3):
        if state[3 * model + 1] > 0:
            state[3 * model + 2] -= wait
    return wait, ends, together


@numba.njit(cache=True)
def _grown(array: NDArray[numpy.generic], size: int) -> NDArray[numpy.generic]:
    """A longer copy."""
    longer = numpy.empty(size, array.dtype)
    longer[: len(array)] = array
    return longer


@numba.njit(cache=True)
def _explore(
    concurrency: int,
    thresholds: Ints,
    limits: Ints,
    ticks: Ints,
    outcome_first: NDArray[numpy.int64],
    outcome_rows: NDArray[numpy.int64],
    moves: Ints,
    outcome_odds: Floats,
    max_states: int,
) -> tuple[int, Ints, Ints, Ints, NDArray[numpy.int64], Ints, Floats]:
    """Breadth first; the parts of a `Chain` after how it ended (TOO_MANY, DEADLOCK, COMPLETE)."""
    models = len(thresholds)
    rows = numpy.zeros((max_states, 3 * models), numpy.int32)
    wait, ends = numpy.zeros(max_states, numpy.int32), numpy.zeros(max_states, numpy.int32)
    first = numpy.zeros(max_states + 1, numpy.int64)
    targets, odds = numpy.empty(1024, numpy.int32), numpy.empty(1024)
    slots = 16
    while slots < 2 * max_states:
        slots *= 2
    table = numpy.full(slots, -1, numpy.int32)
    rows[0, 0] = concurrency
    _launch(rows[0], thresholds, limits, ticks)
    table[_find(rows[0], rows, table)] = 0
    base, state = numpy.empty(3 * models, numpy.int32), numpy.empty(3 * models, numpy.int32)
    count, done, edges, result = 1, 0, 0, COMPLETE
    while done < count and result == COMPLETE:
        base[:] = rows[done]
        wait[done], model, together = _advance(base)
        if model < 0:
            result = DEADLOCK
            break
        ends[done] = model
        batch = base[3 * model + 1]
        base[3 * model + 1] = 0
        low, many = outcome_first[model, batch], outcome_rows[model, batch]
        if many == 0:
            result = TOO_MANY
            break
        if edges + many > len(targets):
            targets, odds = _grown(targets, 2 * (edges + many)), _grown(odds, 2 * (edges + many))
        for row in range(low, low + many):
            if outcome_odds[row] == 0.0:
                continue
            state[:] = base
            for to in range(models):
                state[3 * to] += moves[row, to]
            if not together:
                _launch(state, thresholds, limits, ticks)
            slot = _find(state, rows, table)
            if table[slot] < 0:
                if count == max_states:
                    result = TOO_MANY
                    break
                rows[count] = state
                table[slot] = count
                count += 1
            targets[edges] = table[slot]
            odds[edges] = outcome_odds[row]
            edges += 1
        done += 1
        first[done] = edges
    return (
        result,
        rows[:count],
        wait[:count],
        ends[:count],
        first[: count + 1],
        targets[:edges],
        odds[:edges],
    )
