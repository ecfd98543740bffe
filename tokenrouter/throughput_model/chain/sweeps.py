"""Gauss-Seidel sweeps over the states of a closed class, compiled, for `stationary.py`."""

from __future__ import annotations

import numpy
from numpy.typing import NDArray

from tokenrouter.throughput_model.chain.outcomes import Ints
from tokenrouter.throughput_model.compiled import compiled
from tokenrouter.throughput_model.parameters import Floats

Indices = NDArray[numpy.int64]


@compiled
def order_of(first: Indices, targets: Ints, start: int, size: int) -> Indices:
    """States reached from one, in reverse postorder of a depth-first search."""
    order = numpy.empty(size, numpy.int64)
    place = first[:-1].copy()
    seen = numpy.zeros(size, numpy.bool_)
    stack = numpy.empty(size, numpy.int64)
    stack[0], depth, done = start, 1, size
    seen[start] = True
    while depth:
        state = stack[depth - 1]
        if place[state] < first[state + 1]:
            target = targets[place[state]]
            place[state] += 1
            if not seen[target]:
                seen[target] = True
                stack[depth] = target
                depth += 1
        else:
            depth -= 1
            done -= 1
            order[done] = state
    return order[done:]


@compiled
def incoming(
    first: Indices, targets: Ints, odds: Floats, order: Indices
) -> tuple[Ints, Floats, Indices, Floats]:
    """Transitions into each state of a closed class, renumbered by its place in ``order``.

    Returns sources and odds (without those that stay), where each state's begin, and its own
    probability to stay.
    """
    size = len(order)
    place = numpy.zeros(len(first) - 1, numpy.int32)
    for index in range(size):
        place[order[index]] = index
    begin = numpy.zeros(size + 1, numpy.int64)
    stays = numpy.zeros(size)
    for index in range(size):
        for edge in range(first[order[index]], first[order[index] + 1]):
            to = place[targets[edge]]
            if to == index:
                stays[index] += odds[edge]
            else:
                begin[to + 1] += 1
    begin = numpy.cumsum(begin)
    fill = begin[:-1].copy()
    sources, weights = numpy.empty(begin[-1], numpy.int32), numpy.empty(begin[-1])
    for index in range(size):
        for edge in range(first[order[index]], first[order[index] + 1]):
            to = place[targets[edge]]
            if to != index:
                sources[fill[to]] = index
                weights[fill[to]] = odds[edge]
                fill[to] += 1
    return sources, weights, begin, stays


@compiled
def sweep(
    sources: Ints,
    odds: Floats,
    first: Indices,
    stays: Floats,
    tokens: Floats,
    wait: Ints,
    law: Floats,
    tolerance: float,
    most: int,
) -> bool:
    """Gauss-Seidel on ``law``, until neither it nor its throughput moves; whether it got there."""
    last, rate = law.copy(), 0.0
    for _ in range(most):
        last[:] = law
        _once(sources, odds, first, stays, law)
        law /= law.sum()
        before, rate = rate, (law * tokens).sum() / (law * wait).sum()
        if numpy.abs(law - last).sum() < tolerance and abs(rate - before) <= tolerance * rate:
            return True
    return False


@compiled
def _once(sources: Ints, odds: Floats, first: Indices, stays: Floats, law: Floats) -> None:
    """One sweep: what flows into each state, by the law as far as it has been updated."""
    if len(law) == 1:  # it only stays
        return
    for state in range(len(law)):
        inflow = 0.0
        for edge in range(first[state], first[state + 1]):
            inflow += law[sources[edge]] * odds[edge]
        law[state] = inflow / (1.0 - stays[state])
