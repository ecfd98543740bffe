"""The search for reachable states, compiled; `chain.py` says what a state is and what it returns.

A state is a row of 3M integers: queue, batch and residual ticks of each model.
"""

from __future__ import annotations

import numpy
from numpy.typing import NDArray

from tokenrouter.throughput_model.chain.outcomes import Ints
from tokenrouter.throughput_model.compiled import compiled
from tokenrouter.throughput_model.parameters import Floats

TOO_MANY, DEADLOCK, COMPLETE = 0, 1, 2


@compiled
def _launch(state: Ints, thresholds: Ints, limits: Ints, ticks: Ints) -> None:
    """Every idle model with enough requests in its queue starts a batch."""
    for model in range(len(thresholds)):
        queue, batch = state[3 * model], state[3 * model + 1]
        if batch == 0 and queue >= thresholds[model]:
            size = min(queue, limits[model])
            state[3 * model] = queue - size
            state[3 * model + 1] = size
            state[3 * model + 2] = ticks[model, size]


@compiled
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


@compiled
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


@compiled
def _numbered(state: Ints, rows: Ints, table: Ints, count: int) -> int:
    """The number of a state; ``count`` if it is new, and then it is noted; -1 if all are used."""
    slot = _find(state, rows, table)
    if table[slot] < 0:
        if count == len(rows):
            return -1
        rows[count] = state
        table[slot] = count
    return int(table[slot])


@compiled
def _start(concurrency: int, thresholds: Ints, limits: Ints, ticks: Ints, rows: Ints) -> Ints:
    """The first row: what launches from the queue of model 0; returns a hash table of that row."""
    slots = 16
    while slots < 2 * len(rows):
        slots *= 2
    table = numpy.full(slots, -1, numpy.int32)
    rows[0, 0] = concurrency
    _launch(rows[0], thresholds, limits, ticks)
    table[_find(rows[0], rows, table)] = 0
    return table


@compiled
def explore(
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
    """Breadth first.

    Returns how it ended, then what a `Chain` has: the states themselves, wait, ends, first,
    targets and odds.
    """
    rows = numpy.zeros((max_states, 3 * len(thresholds)), numpy.int32)
    wait, ends = numpy.zeros(max_states, numpy.int32), numpy.zeros(max_states, numpy.int32)
    first = numpy.zeros(max_states + 1, numpy.int64)
    targets, odds = numpy.empty(1024, numpy.int32), numpy.empty(1024)
    table = _start(concurrency, thresholds, limits, ticks, rows)
    base, state = rows[0].copy(), rows[0].copy()
    count, done, edges, ended = 1, 0, 0, COMPLETE
    while done < count and ended == COMPLETE:
        base[:] = rows[done]
        wait[done], model, together = _advance(base)
        if model < 0:
            ended = DEADLOCK
            break
        ends[done] = model
        batch = base[3 * model + 1]
        base[3 * model + 1] = 0
        low, many = outcome_first[model, batch], outcome_rows[model, batch]
        if many == 0:
            ended = TOO_MANY
        if edges + many > len(targets):
            targets = numpy.append(targets, numpy.empty(edges + many, numpy.int32))
            odds = numpy.append(odds, numpy.empty(edges + many))
        for row in range(low, low + many):
            state[:] = base
            for to in range(len(thresholds)):
                state[3 * to] += moves[row, to]
            if not together:
                _launch(state, thresholds, limits, ticks)
            number = _numbered(state, rows, table, count)
            if number < 0:
                ended = TOO_MANY
                break
            count = max(count, number + 1)
            targets[edges] = number
            odds[edges] = outcome_odds[row]
            edges += 1
        done += 1
        first[done] = edges
    return (
        ended,
        rows[:count],
        wait[:count],
        ends[:count],
        first[: count + 1],
        targets[:edges],
        odds[:edges],
    )
