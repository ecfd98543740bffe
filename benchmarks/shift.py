"""Shifts of what thresholds depend on, for `auto_thresholds.py`.

`shifted`: requests with p = 0.35 run until thresholds have settled; then others with a third of
it take their place, while every step of the slowed models becomes three times as long. If that
is the large one alone, the best thresholds are nearly the same as before; if it is both, those
of before lose a tenth. `drifted`: p becomes a third while the same requests go on.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence

from contest import (
    AUTO,
    NAMES,
    PERIOD_S,
    START_S,
    STEP_MS,
    TOKENS,
    Effort,
    P,
    Traffic,
    Turn,
    Vector,
    compare,
    config_of,
    predicted,
    system_of,
    turn,
)  # fmt: skip
from drifting import NAME as DRIFTING
from drifting import NEW_P
from intervals import lower_bound
from served import served
from steady import running
from validation import Verdict
from watching import watch

FACTOR = 3.0
"""As of `slowing.py`."""
BEFORE_S = 20.0
FIXED_S = 1.0
"""As `BEFORE_S`, for thresholds that have nothing to learn."""
DRIFT_S = 26.0
"""After which the slowest of the requests has drifted."""
AFTER_S = 15.0
"""That thresholds have to settle again."""
RIVALS = 2
SHIFTED = 0.97


Take = Callable[[Vector, Traffic], Turn]


def shift(effort: Effort, concurrency: int, slowed: Sequence[str]) -> list[Verdict]:
    """From `AFTER_S` after other requests came, and the models ``slowed`` became slower."""

    def take(vector: Vector, traffic: Traffic) -> Turn:
        return shifted(vector, traffic, slowed, AFTER_S + effort.seconds, effort.nice)

    return _follows(effort, concurrency, slowed, take, AFTER_S)


def drift(effort: Effort, concurrency: int) -> list[Verdict]:
    """From `AFTER_S` after p became `NEW_P` for the same requests."""
    skip_s = DRIFT_S + AFTER_S

    def take(vector: Vector, traffic: Traffic) -> Turn:
        return turn(vector, traffic, skip_s + effort.seconds, effort.nice, DRIFTING)

    return _follows(effort, concurrency, (), take, skip_s)


def shift_takes(effort: Effort) -> float:
    """Seconds of `shift`, about."""
    turns = RIVALS + 1
    waits = BEFORE_S + RIVALS * FIXED_S
    return effort.rounds * (turns * (START_S + AFTER_S + effort.seconds) + waits)


def drift_takes(effort: Effort) -> float:
    """Seconds of `drift`, about."""
    return effort.rounds * (RIVALS + 1) * (START_S + DRIFT_S + AFTER_S + effort.seconds)


def _follows(
    effort: Effort, concurrency: int, slowed: Sequence[str], take: Take, skip_s: float
) -> list[Verdict]:
    """Throughput of automatic thresholds from ``skip_s`` on, over that of the best fixed ones."""
    vectors = new_best(concurrency, slowed)
    rounds = [
        [take(each, Traffic(concurrency, first=1000 * number)) for each in (AUTO, *vectors)]
        for number in range(effort.rounds)
    ]
    written = [sum(turns[i].written(skip_s) for turns in rounds) for i in range(len(vectors) + 1)]
    best = max(range(1, len(written)), key=lambda i: written[i])
    ratio, blocks = compare([(turns[0], turns[best]) for turns in rounds], skip_s, effort.blocks)
    last = rounds[-1][0].readings[-1].thresholds
    what = f"{ratio} of the new best, {vectors[best - 1]}, with {last}"
    bound = lower_bound(ratio, blocks)
    return [Verdict(f"{what}, at least {bound:.3f} (wanted: {SHIFTED})", ratio.value >= SHIFTED)]


def new_best(concurrency: int, slowed: Sequence[str]) -> list[Vector]:
    """The vectors that should be best after the shift."""
    pairs = zip(NAMES, STEP_MS, strict=True)
    system = system_of(NEW_P, [ms * FACTOR if name in slowed else ms for name, ms in pairs])
    return [*predicted(system, concurrency)[:RIVALS]]


def shifted(
    vector: Vector, traffic: Traffic, slowed: Sequence[str], seconds: float, nice: int
) -> Turn:
    """What ``vector`` did in so many seconds after the shift; ``slowed``: names of models."""
    before = Traffic(traffic.concurrency, P, traffic.first)
    after = Traffic(traffic.concurrency, NEW_P, traffic.first + traffic.concurrency)
    with served(config_of(vector), nice, module="benchmarks.slowing") as server:
        with running(server.port, before.model, before.numbers, TOKENS, stream=False):
            time.sleep(BEFORE_S if vector == AUTO else FIXED_S)
        start = watch(server.url, 0.0, PERIOD_S)
        for name in slowed:
            os.kill(server.pid_of(name), signal.SIGUSR1)
        began = time.monotonic()
        with running(server.port, after.model, after.numbers, TOKENS, stream=False) as requests:
            readings = watch(server.url, began + seconds, PERIOD_S)
            requests.check()
    return Turn(vector, began, [*start, *readings])
