"""The best table for what was measured. Imports numba: only the planner's worker loads it.

Memoryless routing is solved by the model (`tables`). An algorithm whose runs are not geometric,
or an objective that limits gaps between tokens, takes the event simulation: requests that
decide as recorded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy

from tokenrouter.planner.problem import Problem, Rules, Solution
from tokenrouter.planner.publishing import Table, row
from tokenrouter.subserver.batching import clamp
from tokenrouter.subserver.thresholds import LONGEST_TABLE, fixed_table
from tokenrouter.throughput_model import decisions, estimate, events, pattern, simulate, tables
from tokenrouter.throughput_model.parameters import Floats, System, Thresholds
from tokenrouter.throughput_model.space import Space, clamped
from tokenrouter.throughput_model.trace import Trace

LEAST_GAIN = 0.02
"""Of other thresholds than 1: below, waiting is not worth its risk."""
ROWS = 16
"""A table has so many rows at least, and twice as many as there are live requests."""
REPLAYED = 20_000
"""Steps of one event simulation of a vector."""
REPLAYS = 6
"""Simulations of a vector, from different beginnings: where runs are all of one length,
requests fall into one of several rhythms, which may be very different."""
LONGEST_STEPS = 10
"""A wait ends after so many of the longest steps, unless the configuration says when."""
WHOLE = 40
"""Vectors up to which event simulations try all."""
STARTS = 4
"""Other searches begin in so many places."""


def solve(problem: Problem) -> Solution:
    """The best table, and what it is expected to gain.

    Raises:
        ConfigError: the measurements make no system.
    """
    rules, windows = problem.rules, problem.windows
    models = estimate.reached(windows)
    if len(models) < 2:
        same_row = row(problem.table, problem.live) == row(rules.base, problem.live)
        change = 1.0 if same_row else math.inf
        reason = f"requests stay with {rules.names[models[0]]}"
        return Solution(problem.live, rules.base, 1.0, change, "none needed", reason)
    system = estimate.system(rules.names, rules.limits, windows, models, prefill=True)
    odd = [m for m in models if not estimate.geometric(windows[m].runs)]
    if odd or rules.itl_p99_ms is not None:
        return _replayed(problem, system, models, odd)
    return _modelled(problem, system, models)


def _modelled(problem: Problem, system: System, models: Sequence[int]) -> Solution:
    """By the model, whose routing has no memory."""
    rules, live = problem.rules, problem.live
    found = tables.table(
        system,
        min(max(2 * live, ROWS), LONGEST_TABLE),
        live,
        _pinned(rules, models),
        [_within(each, models) for each in problem.table],
        margin=LEAST_GAIN,
    )
    table: Table = fitted([_spread(each, models, len(rules.names)) for each in found], rules)
    rows = [_within(row(each, live), models) for each in (table, rules.base, problem.table)]
    new, base, now = simulate.predict(system, live, rows)
    gain = new.tokens_per_s / base.tokens_per_s
    change = new.tokens_per_s / now.tokens_per_s
    if gain < 1.0 + LEAST_GAIN:
        table, change, gain = rules.base, change / gain, 1.0
    error = 100 * new.stderr / new.tokens_per_s
    method = f"model, simulated to {error:.2f} %"
    return Solution(live, table, gain, change, method, _measured(system, live, new.mean_batch))


def _replayed(
    problem: Problem, system: System, models: Sequence[int], odd: Sequence[int]
) -> Solution:
    """By simulating requests one by one, on runs as long as those that were recorded."""
    rules, live = problem.rules, problem.live
    replay = _Replay(problem, system, models, odd)
    space = clamped(system, live, _pinned(rules, models))
    now = space.clip(_within(row(problem.table, live), models))
    scores = replay.search(space, [now])
    best = scores.best(1)[0]
    points = scores.known
    if 0 < points[best] < (1.0 + LEAST_GAIN) * points[space.low] and points[space.low] > 0:
        best = space.low
    table: Table = fitted(fixed_table(_spread(best, models, len(rules.names))), rules)
    if best == space.low:
        table = rules.base
    method = "model"
    if odd:
        names = " and ".join(rules.names[m] for m in odd)
        method = f"simulation of recorded runs, as those on {names} are not geometric"
    if rules.itl_p99_ms is not None:
        gap = replay.gap_ms(best)
        method += f", 99 % of gaps {'within' if gap <= rules.itl_p99_ms else 'only within'} "
        method += f"{gap:.0f} ms"
    batches = replay.mean_batch(best)
    return Solution(
        live,
        table,
        _ratio(points[best], points[space.low]),
        _ratio(points[best], points[now]),
        method,
        _measured(system, live, batches),
    )


class _Replay:
    """Scores of vectors, by event simulations that all share their decisions."""

    def __init__(
        self, problem: Problem, system: System, models: Sequence[int], odd: Sequence[int]
    ) -> None:
        self._system, self._limit = system, problem.rules.itl_p99_ms
        live = problem.live
        latencies = [system.latencies(m, live) for m in range(system.size)]
        best = [each.min() for each in latencies]
        self._duration = REPLAYED / live * float(system.visit_shares @ best)
        longest = max(float(each.max()) for each in latencies)
        self._max_wait = problem.rules.max_wait_ms or LONGEST_STEPS * longest
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


def fitted(table: Table, rules: Rules) -> list[Thresholds]:
    """The table, legal for a `Plan` and for members that hold the base's instead.

    Members whose thresholds are the user's have the base's in every row; the others shrink
    until the row cannot deadlock, and are no higher than for more requests.
    """
    rows: list[Thresholds] = []
    for live in range(1, max(len(table), len(rules.base)) + 1):
        wanted, base = row(table, live), row(rules.base, live)
        spare = live - sum(base) + len(base)
        free = [1 if m in rules.fixed else each for m, each in enumerate(wanted)]
        shrunk = clamp(free, spare)
        rows.append(tuple(base[m] if m in rules.fixed else each for m, each in enumerate(shrunk)))
    for index in range(len(rows) - 2, -1, -1):
        rows[index] = tuple(map(min, rows[index], rows[index + 1]))
    return rows


def _pinned(rules: Rules, models: Sequence[int]) -> dict[int, int]:
    return {models.index(m): threshold for m, threshold in rules.fixed.items() if m in models}


def _within(thresholds: Sequence[int], models: Sequence[int]) -> Thresholds:
    return tuple(thresholds[m] for m in models)


def _spread(thresholds: Sequence[int], models: Sequence[int], count: int) -> Thresholds:
    """Thresholds of ``models``, and 1 for the other members."""
    known = dict(zip(models, thresholds, strict=True))
    return tuple(known.get(m, 1) for m in range(count))


def _ratio(points: float, other: float) -> float:
    """How many times better; infinite where only the first meets the objective."""
    if points > 0:
        return points / other if other > 0 else math.inf
    return other / points if other < 0 else 0.0


def _measured(system: System, live: int, batches: Sequence[float]) -> str:
    """Routing and latencies that matter, in words."""
    names = [model.name for model in system.models]
    moves = [
        f"{name} to {other} {system.routing[a, b]:.3g}"
        for a, name in enumerate(names)
        for b, other in enumerate(names)
        if a != b and 0 < system.routing[a, b] < 1
    ]
    steps = [
        f"{name} {system.latencies(m, live)[round(size) - 1]:.3g} ms for {round(size)}"
        for m, (name, size) in enumerate(
            zip(names, (max(each, 1.0) for each in batches), strict=True)
        )
    ]
    return "; ".join(filter(None, [", ".join(moves), "steps: " + ", ".join(steps)]))
