"""A shift of everything that thresholds depend on, for `auto_thresholds.py`.

Requests with p = 0.35 run until thresholds have settled; then others with a third of it take
their place, while every step of the slowed models becomes three times as long. If that is the
large one alone, the best thresholds are nearly the same as before; if it is both, those of
before lose a tenth.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from contest import (
    EVENTS,
    NAMES,
    PERIOD_S,
    STEP_MS,
    TOKENS,
    P,
    Traffic,
    Turn,
    Vector,
    config_of,
    system_of,
)  # fmt: skip
from served import served
from steady import running
from watching import watch

from tokenrouter.throughput_model.count_simulation import simulate
from tokenrouter.throughput_model.parameters import Thresholds
from tokenrouter.throughput_model.search.search import feasible

NEW_P = 0.117
FACTOR = 3.0
"""As of `slowing.py`."""
BEFORE_S = 20.0
AFTER_S = 15.0
"""That thresholds have to settle again."""


def new_best(concurrency: int, slowed: Sequence[str], count: int) -> list[Thresholds]:
    """The vectors that are predicted to be best after the shift."""
    pairs = zip(NAMES, STEP_MS, strict=True)
    system = system_of(NEW_P, [ms * FACTOR if name in slowed else ms for name, ms in pairs])
    predictions = simulate.predict(
        system, concurrency, list(feasible(system, concurrency)), events=EVENTS
    )
    ordered = sorted(predictions, key=lambda each: -each.tokens_per_s)
    return [each.thresholds for each in ordered[:count]]


def shifted(
    vector: Vector, traffic: Traffic, slowed: Sequence[str], seconds: float, nice: int
) -> Turn:
    """What ``vector`` did in so many seconds after the shift; ``slowed``: names of models."""
    before = Traffic(traffic.concurrency, P, traffic.first)
    after = Traffic(traffic.concurrency, NEW_P, traffic.first + traffic.concurrency)
    with served(config_of(vector), nice, module="benchmarks.slowing") as server:
        with running(server.port, before.model, before.numbers, TOKENS, stream=False):
            time.sleep(BEFORE_S)
        start = watch(server.url, 0.0, PERIOD_S)
        for name in slowed:
            os.kill(server.pid_of(name), signal.SIGUSR1)
        began = time.monotonic()
        with running(server.port, after.model, after.numbers, TOKENS, stream=False) as requests:
            readings = watch(server.url, began + seconds, PERIOD_S)
            requests.check()
    return Turn(vector, began, [*start, *readings])
