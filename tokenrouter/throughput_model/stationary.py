"""The stationary law of a chain (`chain.py`), for `exact.py`.

A chain may have several closed classes (deterministic routing), and may be periodic. Each class
is solved by itself and weighed by the probability that the start ends in it. Within a class,
Gauss-Seidel sweeps in the order of a depth-first search, in which nearly all transitions go
forward: a sweep carries probability through whole cycles of the system at once. Where the sweeps
do not settle, as they need not in a periodic chain, a sparse direct solution takes over.
"""

from __future__ import annotations

import numpy
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph, linalg

from tokenrouter.throughput_model.chain import Chain
from tokenrouter.throughput_model.compiled import compiled
from tokenrouter.throughput_model.outcomes import Ints
from tokenrouter.throughput_model.parameters import Floats

Indices = NDArray[numpy.int64]
TOLERANCE = 1e-11
"""Of the law (total absolute change) and of the throughput (relative) from sweep to sweep."""
MAX_SWEEPS = 500


def classes(chain: Chain) -> list[tuple[float, Indices]]:
    """The closed classes: the probability that the start ends in each, and its states."""
    matrix = sparse.csr_array((chain.odds, chain.targets, chain.first), (chain.size,) * 2)
    count, label = csgraph.connected_components(matrix, connection="strong")
    source = numpy.repeat(label, numpy.diff(chain.first))
    leaves = numpy.unique(source[source != label[chain.targets]])
    closed = numpy.setdiff1d(numpy.arange(count), leaves)
    members = [numpy.flatnonzero(label == each) for each in closed]
    if len(members) == 1:
        return [(1.0, members[0])]
    passing = numpy.flatnonzero(numpy.isin(label, leaves))
    stay = sparse.eye_array(len(passing)) - matrix[passing][:, passing]
    start = numpy.zeros(len(passing))
    start[0] = 1.0  # several classes: the start, first of all states, is in none
    visits = linalg.spsolve(stay.T.tocsc(), start)
    weights = [float(visits @ matrix[passing][:, each].sum(axis=1)) for each in members]
    return list(zip(weights, members, strict=True))


def law(chain: Chain, members: Indices, tokens: Floats) -> Floats:
    """(S,) share of all transitions that leave each state of one closed class; others have 0.

    ``tokens`` (S,): committed by the transition from each state, on average.
    """
    order = _order(chain.first, chain.targets, members[0], chain.size)
    sources, odds, first, stays = _incoming(chain.first, chain.targets, chain.odds, order)
    shares, settled = _sweep(
        sources, odds, first, stays, tokens[order], chain.wait[order], TOLERANCE, MAX_SWEEPS
    )
    result = numpy.zeros(chain.size)
    result[order] = shares if settled else _direct(sources, odds, first, stays)
    return result


@compiled
def _order(first: Indices, targets: Ints, start: int, size: int) -> Indices:
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
def _incoming(
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
def _sweep(
    sources: Ints,
    odds: Floats,
    first: Indices,
    stays: Floats,
    tokens: Floats,
    wait: Ints,
    tolerance: float,
    max_sweeps: int,
) -> tuple[Floats, bool]:
    """Gauss-Seidel until neither the law nor its throughput moves; whether it got there."""
    size = len(stays)
    law = numpy.full(size, 1.0 / size)
    before = 0.0
    for _ in range(max_sweeps):
        change, total, earned, time = 0.0, 0.0, 0.0, 0.0
        for state in range(size):
            inflow = 0.0
            for edge in range(first[state], first[state + 1]):
                inflow += law[sources[edge]] * odds[edge]
            if size > 1:
                inflow /= 1.0 - stays[state]
            else:
                inflow = 1.0
            change += abs(inflow - law[state])
            law[state] = inflow
            total += inflow
            earned += inflow * tokens[state]
            time += inflow * wait[state]
        law /= total
        rate = earned / time
        if change < tolerance * total and abs(rate - before) <= tolerance * rate:
            return law, True
        before = rate
    return law, False


def _direct(sources: Ints, odds: Floats, first: Indices, stays: Floats) -> Floats:
    """The law of one closed class from its balance equations, with state 0 as the unit."""
    size = len(stays)
    inflow = sparse.csr_array((odds, sources, first), (size, size))
    balance = (sparse.diags_array(1.0 - stays) - inflow).tocsc()
    law = numpy.ones(size)
    law[1:] = linalg.spsolve(balance[1:, 1:], -balance[1:, [0]].toarray().ravel())
    shares: Floats = law / law.sum()
    return shares
