"""What vectors give whether requests begin together or scattered (`simulate.py`).

Crowds can be bistable: some vectors write fast only as long as requests move in step, as they
do when all begin together, and fall behind for good once they scatter.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenrouter.throughput_model.count_simulation.simulate import Simulation, predictions
from tokenrouter.throughput_model.count_simulation.tapes import tapes_for
from tokenrouter.throughput_model.parameters import Prediction, System, Thresholds

FALL = 0.02
"""Rates from two beginnings that differ by more than this share do so not by chance alone."""
SHORT = 4
"""How many times shorter a run is that only shows whether a vector falls."""


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
    """Of vectors known to be feasible; that of scattered requests where they fall behind."""
    if not vectors:
        return []
    together = predictions(simulation, vectors, events)
    rates = simulation.run(vectors, events // SHORT, scattered=True).tokens_per_s.tolist()
    fallen = [
        each.thresholds
        for each, rate in zip(together, rates, strict=True)
        if rate < (1 - FALL) * each.tokens_per_s
    ]
    if not fallen:
        return together
    scattered = predictions(simulation, fallen, events, scattered=True)
    behind = {each.thresholds: each for each in scattered}
    pairs = [(each, behind.get(each.thresholds, each)) for each in together]
    return [min(pair, key=lambda each: each.tokens_per_s) for pair in pairs]
