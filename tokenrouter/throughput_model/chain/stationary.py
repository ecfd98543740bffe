"""The stationary law of a chain (`chain.py`), for `exact.py`.

A chain may have several closed classes (deterministic routing), and may be periodic. Each class
is solved by itself and weighed by the probability that the start ends in it. Within a class,
Gauss-Seidel sweeps in the order of a depth-first search, in which nearly all transitions go
forward: a sweep carries probability through whole cycles of the system at once, and 10 to 30 of
them do. What is slow even so (requests that rarely change models) is settled between sweeps for
groups of states, as a smaller chain; and where that does not help, as it need not in a periodic
chain, a sparse direct solution takes over.
"""

from __future__ import annotations

import numpy
from scipy import sparse
from scipy.sparse import csgraph, linalg

from tokenrouter.throughput_model.chain import sweeps
from tokenrouter.throughput_model.chain.chain import Chain, TooManyStatesError
from tokenrouter.throughput_model.chain.outcomes import Ints
from tokenrouter.throughput_model.chain.sweeps import Indices
from tokenrouter.throughput_model.parameters import Floats

TOLERANCE = 1e-11
"""Of the law (total absolute change) and of the throughput (relative) from sweep to sweep."""
SWEEPS, ROUNDS = 30, 30
"""Sweeps between regroupings, and how often before a chain is solved directly."""
DIRECT_MOST = 8_000
"""States of the largest class that is solved directly: about a second."""


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

    Raises:
        TooManyStatesError: sweeps do not settle, and the class is too large for more.
    """
    order = sweeps.order_of(chain.first, chain.targets, members[0], chain.size)
    inflow = sweeps.incoming(chain.first, chain.targets, chain.odds, order)
    shares = numpy.full(len(order), 1.0 / len(order))
    settled = sweeps.sweep(*inflow, tokens[order], chain.wait[order], shares, TOLERANCE, SWEEPS)
    regroupings = 0
    while not settled and regroupings < ROUNDS:
        shares = _regrouped(*inflow, _populations(chain, order), shares)
        settled = sweeps.sweep(*inflow, tokens[order], chain.wait[order], shares, TOLERANCE, SWEEPS)
        regroupings += 1
    if not settled and len(order) > DIRECT_MOST:
        raise TooManyStatesError(
            f"concurrency: {len(order)} states settle too slowly to be solved; simulate them"
        )
    result = numpy.zeros(chain.size)
    result[order] = shares if settled else _direct(*inflow)
    return result


def _populations(chain: Chain, order: Indices) -> Indices:
    """(len(order),): states have equal numbers that have as many requests at every model."""
    present = (chain.queue + chain.batch)[order].astype(numpy.int64)
    key = present @ (int(present.max()) + 1) ** numpy.arange(present.shape[1])
    groups: Indices = numpy.unique(key, return_inverse=True)[1]
    return groups


def _regrouped(
    sources: Ints, odds: Floats, first: Indices, stays: Floats, groups: Indices, law: Floats
) -> Floats:
    """The law with the share of each group as it would be if each was settled in itself.

    Aggregation and disaggregation (Koury, McAllister and Stewart 1984): requests that rarely
    change models make the groups, but not the states within one, slow to settle.
    """
    count = int(groups.max()) + 1
    targets = numpy.repeat(groups, numpy.diff(first))
    flow = numpy.bincount(groups[sources] * count + targets, odds * law[sources], count**2)
    flow += numpy.bincount(groups * (count + 1), stays * law, count**2)
    share = numpy.bincount(groups, law, count)
    taken = share > 0  # what is too rare for a float has none
    between = flow.reshape(count, count) / numpy.where(taken, share, 1.0)[:, None]
    balance = between.T - numpy.eye(count)
    balance[-1] = 1.0
    settled = numpy.linalg.solve(balance, numpy.eye(count)[-1])
    scale = numpy.divide(numpy.maximum(settled, 0.0), share, where=taken, out=numpy.zeros(count))
    better: Floats = law * scale[groups]
    return better


def _direct(sources: Ints, odds: Floats, first: Indices, stays: Floats) -> Floats:
    """The law of one closed class from its balance equations, with state 0 as the unit."""
    size = len(stays)
    inflow = sparse.csr_array((odds, sources, first), (size, size))
    balance = (sparse.diags_array(1.0 - stays) - inflow).tocsc()
    law = numpy.ones(size)
    law[1:] = linalg.spsolve(balance[1:, 1:], -balance[1:, [0]].toarray().ravel())
    shares: Floats = law / law.sum()
    return shares
