"""What vectors give whether requests begin together or scattered (`simulate.py`).

Crowds can be bistable: some vectors write fast only as long as requests move in step, as they
do when all begin together, and fall behind for good once they scatter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from tokenrouter.throughput_model.count_simulation.simulate import Simulation, predictions
from tokenrouter.throughput_model.count_simulation.tapes import tapes_for
from tokenrouter.throughput_model.parameters import Prediction, System, Thresholds

FALL = 0.02
"""Rates from two beginnings that differ by less than this share are about the same."""
SHORT = 16
"""How many times shorter runs are of scattered requests are."""
ERRORS = 2.0
"""Standard errors of such a run that may be chance."""


def robust(
    system: System,
    concurrency: int,
    thresholds: Sequence[Thresholds],
    events: int = 100_000,
    seed: int = 0,
) -> list[Prediction]:
    """`simulate.predict`, from the beginning from which a vector writes fewer tokens.

    Raises:
        ConfigError: a vector is infeasible.
    """
    vectors = [system.check(concurrency, each) for each in thresholds]
    tapes = tapes_for(system, concurrency, events, seed)
    return worse(Simulation(system, concurrency, tapes), vectors, events)


def worse(simulation: Simulation, vectors: Sequence[Thresholds], events: int) -> list[Prediction]:
    """Of vectors known to be feasible; those of scattered requests where these fall behind.

    Those are of a shorter run: requests come and go, so one that catches up later is no better.
    """
    if not vectors:
        return []
    found = predictions(simulation, vectors, events)
    together = numpy.array([each.tokens_per_s for each in found])
    starts = scattered(simulation)
    short = [simulation.run(vectors, events // SHORT, start) for start in starts]
    rates = numpy.array([each.tokens_per_s for each in short])
    worst = rates.argmin(axis=0)
    columns = numpy.arange(len(vectors))
    rate = rates[worst, columns]
    chance = ERRORS * numpy.array([each.stderr for each in short])[worst, columns]
    fallen = (rate < (1 - FALL) * together) & (rate + chance < together)
    for column in numpy.flatnonzero(fallen).tolist():
        start = starts[worst[column]]
        [found[column]] = predictions(simulation, [vectors[column]], events // SHORT, start)
    return found


def scattered(simulation: Simulation) -> list[list[int]]:
    """Requests in each queue: as many in all, as the steps go, and as the work does."""
    models = len(simulation.limits)
    full = simulation.latencies[numpy.arange(models), simulation.limits]
    kinds = numpy.stack([numpy.ones(models), simulation.shares, simulation.shares * full])
    counts = (simulation.concurrency * kinds / kinds.sum(axis=1, keepdims=True)).astype(int)
    counts[:, 0] += simulation.concurrency - counts.sum(axis=1)
    starts: list[list[int]] = counts.tolist()
    return starts
