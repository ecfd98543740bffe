"""Scores of threshold vectors by event simulation, where the model without memory will not do.

Used by `solving.py`: requests stay on a model as long as was recorded, or as long as a
memoryless routing makes them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from tokenrouter.planner.problem import Problem
from tokenrouter.throughput_model.event_simulation import decisions
from tokenrouter.throughput_model.event_simulation.replays import (
    BEGINNINGS,
    Replays,
    longest_wait_ms,
)
from tokenrouter.throughput_model.parameters import Floats, System, Thresholds
from tokenrouter.throughput_model.search import pattern
from tokenrouter.throughput_model.search.space import Space

REPLAYED = 120_000
"""Steps of all event simulations of a vector together."""
WHOLE = 40
"""Vectors up to which event simulations try all."""
STARTS = 4
"""Other searches begin in so many places."""


class Replay:
    """Scores of vectors, by event simulations that all share their decisions."""

    def __init__(
        self, problem: Problem, system: System, models: Sequence[int], odd: Sequence[int]
    ) -> None:
        self._limit = problem.terms.itl_p99_ms
        live = problem.live
        wait = problem.terms.max_wait_ms or longest_wait_ms(system, live)
        steps = int(1.3 * REPLAYED / BEGINNINGS / live) + 1000
        runs = [problem.windows[m].runs if m in odd else {} for m in models]
        tapes = decisions.from_runs(system, runs, live, steps, 0)
        self._replays = Replays(system, tapes, REPLAYED, wait)

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
        return self._replays.trace(vector).itl_p99_ms

    def mean_batch(self, vector: Thresholds) -> tuple[float, ...]:
        """Requests in a step of each model."""
        return self._replays.trace(vector).mean_batch

    def tokens_per_s(self, vector: Thresholds) -> tuple[float, float]:
        """And the standard error."""
        trace = self._replays.trace(vector)
        return trace.tokens_per_s, trace.stderr

    def _score(self, vectors: Sequence[Thresholds]) -> Floats:
        return numpy.array([self._points(each) for each in vectors])

    def _points(self, vector: Thresholds) -> float:
        """Tokens a second; if the objective is missed, minus the gap, which is always worse."""
        gap = self.gap_ms(vector)
        if self._limit is not None and gap > self._limit:
            return -gap
        return self._replays.trace(vector).tokens_per_s
