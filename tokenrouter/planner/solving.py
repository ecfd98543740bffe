"""The best table for what was measured. Imports numba: only the planner's worker loads it.

Memoryless routing is solved by the model (`tables`). An algorithm whose runs are not geometric,
or an objective that limits gaps between tokens, takes the event simulation: requests that
decide as recorded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tokenrouter.ipc.operations import LONGEST_TABLE
from tokenrouter.planner.problem import Problem, Solution, Terms
from tokenrouter.planner.replay import Replay
from tokenrouter.subserver.batching import clamp
from tokenrouter.subserver.tables import Table, fixed_table, never_falling, row
from tokenrouter.throughput_model import estimate, evaluate
from tokenrouter.throughput_model.parameters import LEAST_GAIN, System, Thresholds
from tokenrouter.throughput_model.search import tables
from tokenrouter.throughput_model.search.space import clamped

EXACT = 2_000
"""States of the largest chain that is solved to say what a table gives: milliseconds."""
ROWS = 16
"""A table has so many rows at least, and twice as many as there are live requests."""
TOLD_PREFILL = 0.05
"""Share of its time on prompts from which on a member's is told."""


def solve(problem: Problem) -> Solution:
    """The best table, and what it is expected to gain.

    Raises:
        ConfigError: the measurements make no system.
    """
    terms, windows = problem.terms, problem.windows
    models = estimate.reached(windows)
    if len(models) < 2:
        same_row = row(problem.table, problem.live) == row(terms.base, problem.live)
        change = 1.0 if same_row else math.inf
        reason = f"requests stay with {terms.names[models[0]]}"
        return Solution(problem.live, terms.base, 1.0, change, "none needed", reason)
    system = estimate.system(terms.names, terms.limits, windows, models, prefill=True)
    odd = [m for m in models if not estimate.geometric(windows[m].runs)]
    if odd or terms.itl_p99_ms is not None:
        return _replayed(problem, system, models, odd)
    return _modelled(problem, system, models)


def _modelled(problem: Problem, system: System, models: Sequence[int]) -> Solution:
    """By the model, whose routing has no memory."""
    terms, live = problem.terms, problem.live
    found = tables.table(
        system,
        min(max(2 * live, ROWS), LONGEST_TABLE),
        live,
        _pinned(terms, models),
        [_within(each, models) for each in problem.table],
        margin=LEAST_GAIN,
    )
    table: Table = fitted([_spread(each, models, len(terms.names)) for each in found], terms)
    rows = [_within(row(each, live), models) for each in (table, terms.base, problem.table)]
    new, base, now = (evaluate.predict(system, live, each, EXACT) for each in rows)
    gain = new.tokens_per_s / base.tokens_per_s
    change = new.tokens_per_s / now.tokens_per_s
    if gain < 1.0 + LEAST_GAIN:
        table, change, gain = terms.base, change / gain, 1.0
    error = math.hypot(new.stderr / new.tokens_per_s, base.stderr / base.tokens_per_s)
    simulated = "simulated" in (new.method, base.method)
    method = f"model, simulated +- {100 * error:.2g} %" if simulated else "model, exact"
    reason = _measured(system, live, new.mean_batch) + _prompts(problem, models)
    return Solution(live, table, gain, change, method, reason)


def _replayed(
    problem: Problem, system: System, models: Sequence[int], odd: Sequence[int]
) -> Solution:
    """By simulating requests one by one, on runs as long as those that were recorded."""
    terms, live = problem.terms, problem.live
    replay = Replay(problem, system, models, odd)
    space = clamped(system, live, _pinned(terms, models))
    now = space.clip(_within(row(problem.table, live), models))
    scores = replay.search(space, [now])
    best = scores.best(1)[0]
    points = scores.known
    if 0 < points[best] < (1.0 + LEAST_GAIN) * points[space.low] and points[space.low] > 0:
        best = space.low
    table: Table = fitted(fixed_table(_spread(best, models, len(terms.names))), terms)
    if best == space.low:
        table = terms.base
    rate, stderr = replay.tokens_per_s(best)
    error = f"{100 * stderr / rate:.2g} %"
    method = f"requests simulated one by one +- {error}"
    if odd:
        names = " and ".join(terms.names[m] for m in odd)
        method = f"simulation of recorded runs, as those on {names} are not geometric, +- {error}"
    if terms.itl_p99_ms is not None:
        gap = replay.gap_ms(best)
        method += f", 99 % of gaps {'within' if gap <= terms.itl_p99_ms else 'only within'} "
        method += f"{gap:.0f} ms"
    batches = replay.mean_batch(best)
    return Solution(
        live,
        table,
        _ratio(points[best], points[space.low]),
        _ratio(points[best], points[now]),
        method,
        _measured(system, live, batches) + _prompts(problem, models),
    )


def fitted(table: Table, terms: Terms) -> list[Thresholds]:
    """The table, legal for a `Plan` and for members that hold the base's instead.

    Members whose thresholds are the user's have the base's in every row; the others shrink
    until the row cannot deadlock, and are no higher than for more requests.
    """
    rows: list[Thresholds] = []
    length = min(max(len(table), len(terms.base)), LONGEST_TABLE)
    for live in range(1, length + 1):
        wanted, base = row(table, live), row(terms.base, live)
        spare = live - sum(base) + len(base)
        free = [1 if m in terms.fixed else each for m, each in enumerate(wanted)]
        shrunk = clamp(free, spare)
        rows.append(tuple(base[m] if m in terms.fixed else each for m, each in enumerate(shrunk)))
    return never_falling(rows)


def _pinned(terms: Terms, models: Sequence[int]) -> dict[int, int]:
    return {models.index(m): threshold for m, threshold in terms.fixed.items() if m in models}


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


def _prompts(problem: Problem, models: Sequence[int]) -> str:
    """What prompts cost, where that matters: the steps' times include it."""
    shares = {m: estimate.prefill_share(problem.windows[m]) for m in models}
    told = [
        f"{100 * share:.0f} % of {problem.terms.names[m]}"
        for m, share in shares.items()
        if share >= TOLD_PREFILL
    ]
    return f"; prompts take {' and '.join(told)}" if told else ""
