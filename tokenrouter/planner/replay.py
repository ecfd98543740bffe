"""Scores of threshold vectors by event simulation, where the model without memory will not do.

Used by `solving.py`: requests stay on a model as long as was recorded, or as long as a
memoryless routing makes them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from tokenrouter.configuration.waits import longest_wait
from tokenrouter.planner.problem import Problem
from tokenrouter.throughput_model.event_simulation import decisions, events
from tokenrouter.throughput_model.event_simulation.trace import Trace
from tokenrouter.throughput_model.parameters import Floats, System, Thresholds
from tokenrouter.throughput_model.search import pattern
from tokenrouter.throughput_model.search.space import Space

REPLAYED = 20_000
"""Steps of one event simulation of a vector."""
REPLAYS = 6
"""Simulations of a vector, from different beginnings: where runs are all of one length,
requests fall into one of several rhythms, which may be very different."""
WHOLE = 40
"""Vectors up to which event simulations try all."""
STARTS = 4
"""Other searches begin in so many places."""


class Replay:
    """Scores of vectors, by event simulations that all share their decisions."""

    def __init__(
        self, problem: Problem, system: System, models: Sequence[int], odd: Sequence[int]
    ) -> None:
        self._system, self._limit = system, problem.rules.itl_p99_ms
        live = problem.live
        latencies = [system.latencies(m, live) for m in range(system.size)]
        best = [each.min() for each in latencies]
        self._duration = REPLAYED / live * float(system.visit_shares @ best)
        longest = [float(each.max()) for each in latencies]
        self._max_wait = problem.rules.max_wait_ms or longest_wait(longest)
        steps = int(1.3 * REPLAYED / live) + 1000
        runs = [problem.windows[m].runs if m in odd else {} for m in models]
        tapes = decisions.from_runs(system, runs, live, steps, 0)
        self._tapes = [staggered(tapes, seed) for seed in range(REPLAYS)]
        self._traces: dict[Thresholds, list[Trace]] = {}

    def search(self, space: Space, hints: Sequence[Thresholds]) -> pattern.Scores:
        """All vectors of a small space, or what a pattern search comes by."""
        scores = pattern.Scores(self._score)
        scores.add([space.low, *hints])
        if (everything := space.some(WHOLE)) is not None:
            scores.add(everything)
        else:
            generator = numpy.random.default_rng(0)
            scores.add(pattern.starts(space, generator, STARTS))
            pattern.climb(space, scores, scores.best(STARTS))
        return scores

    def gap_ms(self, vector: Thresholds) -> float:
        """The gap that 1 % of the tokens exceed."""
        return float(numpy.mean([each.itl_p99_ms for each in self._replays(vector)]))

    def mean_batch(self, vector: Thresholds) -> tuple[float, ...]:
        """Requests in a step of each model."""
        batches = [each.mean_batch for each in self._replays(vector)]
        return tuple(numpy.mean(batches, axis=0).tolist())

    def _score(self, vectors: Sequence[Thresholds]) -> Floats:
        return numpy.array([self._points(each) for each in vectors])

    def _points(self, vector: Thresholds) -> float:
        """Tokens a second; if the objective is missed, minus the gap, which is always worse."""
        gap = self.gap_ms(vector)
        if self._limit is not None and gap > self._limit:
            return -gap
        return float(numpy.mean([each.tokens_per_s for each in self._replays(vector)]))

    def _replays(self, vector: Thresholds) -> list[Trace]:
        if vector not in self._traces:
            self._traces[vector] = [
                events.simulate(
                    self._system, vector, tapes, self._duration, max_wait_ms=self._max_wait
                )
                for tapes in self._tapes
            ]
        return self._traces[vector]


def staggered(tapes: decisions.Tapes, seed: int) -> decisions.Tapes:
    """The same decisions, each request beginning somewhere in its own."""
    generator = numpy.random.default_rng(seed)
    first, following, committed = tapes.first.copy(), tapes.following.copy(), tapes.committed.copy()
    for request, length in enumerate(tapes.lengths):
        begin = int(generator.integers(length))
        for steps in (following, committed):
            steps[request, :length] = numpy.roll(steps[request, :length], -begin)
        first[request] = following[request, length - 1]
    return decisions.Tapes(first, following, committed, tapes.lengths)
