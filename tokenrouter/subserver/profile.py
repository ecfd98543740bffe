"""How long steps of a freshly loaded member take, by batch size: what the planner begins with.

Called by `member.py`, and on each further rank by `follower.py`, before the member reports
that it is ready. Everything goes over the `Engine` seam, with visits that nobody asked for,
and nothing of them stays. While it serves, the member measures better (`measurements.py`):
at the lengths that are served, and beside the other members.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

from tokenrouter.ipc.member_state import StepSums
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.subserver.engine import Engine, Visit, Work
from tokenrouter.subserver.measurements import Sums
from tokenrouter.subserver.timed import TimedEngine

LARGEST = 32
"""Requests in the largest batch that is measured."""
CONTEXT = 8
"""Tokens that visits know before each size is measured."""
FED = (1, 1, 1, 2, 8)
"""Tokens that steps of one size feed each request, one step after the other."""
LONGEST = CONTEXT + sum(FED)
BUDGET_S = 1.5
"""No step begins after this, nor a size for which too little of it is left."""

Step = Callable[[Sequence[Work]], object]


def profile(
    engine: Engine,
    max_batch: int,
    step: Step,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, StepSums]:
    """Step times in seconds at batches of 1, 2, 4, ... requests, as far as ``budget_s`` goes.

    Each size counts one step for each number of tokens in `FED`: the median of their times.
    A model so slow that one size takes it all is measured with fewer.
    The order of calls depends on ``max_batch``, on the engine's pools and on ``budget_s``
    only; ranks of one member, which must all make the same calls, have no budget to keep.

    Args:
        engine: no visit is resident.
        step: feeds work to the engine.
    """
    most = min(max_batch, LARGEST, engine.max_visits, engine.pool_tokens // LONGEST)
    found: dict[int, StepSums] = {}
    visits: list[Visit] = []
    left = budget_s
    for size in _sizes(most):
        began = clock()
        _join(engine, step, visits, size)
        found[size] = _measure(step, visits, clock, began + left)
        for visit in visits:
            engine.truncate(visit, CONTEXT)
            visit.computed = CONTEXT
        spent = clock() - began
        left -= spent
        if left < spent:  # the next one will hardly take less
            break
    for visit in visits:
        engine.release(visit)
    engine.control("flush_cache", {})
    return found


def profile_of_law(step_s: Callable[[int], float], max_batch: int) -> dict[int, StepSums]:
    """The profile of a `TimedEngine`, whose clock need not be waited for.

    ``step_s``: seconds that a step of b visits takes. Empty if it takes none: such a member
    has no latency but its loop's.
    """
    if not step_s(1):
        return {}
    now = [0.0]

    def wait_until(due: float) -> None:
        now[0] = due

    def clock() -> float:
        return now[0]

    engine = TimedEngine(
        step_s, range(LARGEST), LARGEST * LONGEST, LARGEST, wait_until=wait_until, clock=clock
    )
    return profile(engine, max_batch, lambda work: engine.step(work, ()), math.inf, clock)


def _sizes(most: int) -> list[int]:
    """Powers of two up to ``most``, and that itself."""
    return sorted({*(1 << bit for bit in range(most.bit_length())), most} - {0})


def _join(engine: Engine, step: Step, visits: list[Visit], size: int) -> None:
    """Add visits until there are ``size``, and compute what they know.

    They differ from the first token on: nothing of one is cached for another.
    """
    new = [_visit(number) for number in range(len(visits), size)]
    for visit in new:
        engine.admit(visit)
    step([(visit, CONTEXT) for visit in new])
    for visit in new:
        visit.computed = CONTEXT
    visits += new


def _measure(
    step: Step, visits: Sequence[Visit], clock: Callable[[], float], until: float
) -> StepSums:
    """Steps of one size; at least one, and none that begins after ``until``."""
    times: dict[int, list[float]] = {}
    for n in FED:
        began = clock()
        if times and began >= until:
            break
        step([(visit, n) for visit in visits])
        times.setdefault(n, []).append(clock() - began)
        for visit in visits:
            visit.computed += n
    sums = Sums()
    for n, seconds in times.items():
        sums.add(statistics.median(seconds), n * len(visits))
    return sums.snapshot()


def _visit(number: int) -> Visit:
    tokens = [number, *range(1, LONGEST)]
    sampling = Sampling(LONGEST, top_k=1)
    return Visit(number, 0, CONTEXT, tokens, sampling, Route("", (), 0), False, False)
