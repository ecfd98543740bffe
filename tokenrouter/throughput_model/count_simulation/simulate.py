"""Throughput of systems too large for the exact chain, by simulating counts of requests.

The state holds how many requests wait for each model and run on it, and how long each model
still computes; requests have no names (`events` knows them one by one). Time is continuous.
All completions of one moment come before the launches, as in the chain. Routing decisions
come from `tapes`, the same for every threshold vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from tokenrouter.throughput_model.compiled import compiled
from tokenrouter.throughput_model.count_simulation.tapes import Tapes, tapes_for
from tokenrouter.throughput_model.parameters import Floats, Prediction, System, Thresholds

BATCHES = 32
"""Stretches of a run whose throughputs give its standard error."""
SAME_MOMENT = 1e-9
"""Completions less than this share of the longest step apart are one moment."""


@dataclass(frozen=True, slots=True)
class Samples:
    """What runs of C threshold vectors counted after their warm-up; times in ms.

    ``tokens`` and ``time``: (C, BATCHES); ``busy`` time, ``steps``, ``requests`` in them and
    ``waiting`` (requests times ms in the queue): (C, M).
    """

    tokens: Floats
    time: Floats
    busy: Floats
    steps: Floats
    requests: Floats
    waiting: Floats

    @property
    def tokens_per_s(self) -> Floats:
        """(C,)."""
        rates: Floats = 1e3 * self.tokens.sum(axis=1) / self.time.sum(axis=1)
        return rates

    @property
    def stderr(self) -> Floats:
        """(C,): of ``tokens_per_s``, by batch means of a ratio."""
        rates = self.tokens_per_s
        errors = 1e3 * self.tokens - rates[:, None] * self.time
        mean_time = self.time.mean(axis=1)
        variances = (errors**2).sum(axis=1) / (BATCHES - 1) / BATCHES
        deviations: Floats = numpy.sqrt(variances) / mean_time
        return deviations


class Simulation:
    """A system at a concurrency, ready to run threshold vectors over the same tapes.

    ``decisions``: tapes for at least this concurrency.
    """

    def __init__(self, system: System, concurrency: int, decisions: Tapes) -> None:
        self.concurrency = concurrency
        self.limits = numpy.array([system.limit(m, concurrency) for m in range(system.size)])
        self.latencies = numpy.zeros((system.size, concurrency + 1))
        for model, limit in enumerate(self.limits):
            self.latencies[model, 1 : limit + 1] = system.latencies(model, concurrency)
        self.shares = system.visit_shares
        self._tokens = system.tokens_per_visit
        self._tapes = decisions

    def run(
        self, thresholds: Sequence[Thresholds], events: int, start: Sequence[int] | None = None
    ) -> Samples:
        """Feasible vectors, each for at least ``events`` completions after a tenth as warm-up.

        ``start``: requests that begin in each queue; None: all begin in that of model 0.
        """
        vectors = numpy.array(thresholds, numpy.int64).reshape(-1, self.limits.size)
        rows, models = vectors.shape
        begin = numpy.array(start or [self.concurrency] + [0] * (models - 1), numpy.int64)
        shapes = (BATCHES, BATCHES, models, models, models, models)
        counted = tuple(numpy.zeros((rows, each)) for each in shapes)
        length = -(-events // BATCHES)
        _run(
            vectors, begin, self.latencies, self.limits, self._tokens,
            self._tapes.sums, self._tapes.length, events // 10, length, *counted,
        )  # fmt: skip
        return Samples(*counted)


def predict(
    system: System,
    concurrency: int,
    thresholds: Sequence[Thresholds],
    events: int = 100_000,
    seed: int = 0,
) -> list[Prediction]:
    """A prediction for each threshold vector, from ``events`` completions of batches.

    Vectors of one call share their routing decisions. Where a deterministic routing leads
    to one of several cycles by chance, the run describes the one it fell into.

    Raises:
        ConfigError: a vector is infeasible.
    """
    vectors = [system.check(concurrency, each) for each in thresholds]
    decisions = tapes_for(system, concurrency, events, seed)
    return predictions(Simulation(system, concurrency, decisions), vectors, events)


def predictions(
    simulation: Simulation,
    vectors: Sequence[Thresholds],
    events: int,
    start: Sequence[int] | None = None,
) -> list[Prediction]:
    """`predict` for vectors known to be feasible; ``start``: see `Simulation.run`."""
    samples = simulation.run(vectors, events, start)
    total = samples.time.sum(axis=1)[:, None]
    batches = samples.requests / numpy.maximum(samples.steps, 1)
    figures = zip(
        vectors, samples.tokens_per_s, samples.stderr, samples.busy / total,
        samples.waiting / total, batches, strict=True,
    )  # fmt: skip
    return [
        Prediction(
            simulation.concurrency, vector, float(rate), "simulated", 0, float(error),
            tuple(busy.tolist()), tuple(queue.tolist()), tuple(batch.tolist()),
        )
        for vector, rate, error, busy, queue, batch in figures
    ]  # fmt: skip


@compiled
def _run(
    vectors: NDArray[numpy.int64],
    start: NDArray[numpy.int64],
    latencies: Floats,
    limits: NDArray[numpy.int64],
    tokens_per_visit: Floats,
    sums: NDArray[numpy.int32],
    tape: int,
    warm_up: int,
    length: int,
    tokens: Floats,
    time: Floats,
    busy: Floats,
    steps: Floats,
    requests: Floats,
    waiting: Floats,
) -> None:
    """Every row of ``vectors``: ``warm_up`` events, then batches of ``length`` events."""
    models = limits.size
    tolerance = SAME_MOMENT * latencies.max()
    for row in range(vectors.shape[0]):
        queue = numpy.zeros(models, numpy.int64)
        running = numpy.zeros(models, numpy.int64)
        left = numpy.full(models, numpy.inf)  # ms until the running step completes
        place = numpy.zeros(models, numpy.int64)  # on its tape
        queue[:] = start
        for event in range(-warm_up - 1, length * BATCHES):
            elapsed = left.min() if event >= -warm_up else 0.0
            for m in range(models):
                if event >= 0:
                    waiting[row, m] += queue[m] * elapsed
                    busy[row, m] += elapsed if running[m] else 0.0
            written = 0.0
            for m in range(models):
                left[m] -= elapsed
                if left[m] > tolerance:
                    continue
                size = running[m]
                first = place[m]
                others = size
                for k in range(models - 1):
                    count = sums[m, first + size, k] - sums[m, first, k]
                    queue[k] += count
                    others -= count
                queue[models - 1] += others
                place[m] = (first + size) % tape
                written += tokens_per_visit[m] * size
                running[m] = 0
                left[m] = numpy.inf
                if event >= 0:
                    steps[row, m] += 1
                    requests[row, m] += size
            if event >= 0:
                tokens[row, event // length] += written
                time[row, event // length] += elapsed
            for m in range(models):
                if running[m] == 0 and queue[m] >= vectors[row, m]:
                    running[m] = min(queue[m], limits[m])
                    queue[m] -= running[m]
                    left[m] = latencies[m, running[m]]
