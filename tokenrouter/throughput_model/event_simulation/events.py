"""Event simulation of a system, request by request.

It gets decisions from `decisions.py` and shares no code with the chain (`exact.py`), which it
checks. It also knows what a chain cannot: gaps between tokens, who is served how much, decisions
that are not memoryless, a longest wait, and the time between models. `event_loop.py` is its loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.event_simulation import event_loop
from tokenrouter.throughput_model.event_simulation.decision_tapes import Tapes
from tokenrouter.throughput_model.event_simulation.decisions import draw
from tokenrouter.throughput_model.event_simulation.event_state import (
    NEVER,
    Rules,
    Steps,
    blank_state,
    blank_sums,
)
from tokenrouter.throughput_model.event_simulation.trace import Trace, trace_of
from tokenrouter.throughput_model.parameters import Floats, System

WINDOWS = 100
"""Batches of the batch means: enough that the standard error is itself known to 7 %."""
FINE_TICK_MS = 1e-6
"""Times are whole ticks, so that events that coincide do so exactly; this one if none is given."""
MOST_STEPS = 100_000_000
"""Steps of all requests together after which a simulation gives up: a minute or so."""
WARM_UP = 0.1
"""Of the duration, before anything is counted."""


def simulate(
    system: System,
    thresholds: Sequence[int],
    tapes: Tapes,
    duration_ms: float,
    warm_up_ms: float | None = None,
    max_wait_ms: float | None = None,
    hop_ms: float = 0.0,
    most_steps: int = MOST_STEPS,
) -> Trace:
    """Run the requests of ``tapes``, all queued at time 0, for a warm-up and ``duration_ms``.

    Of ``system`` it uses latencies, batch limits and the tick. A request feeds a model the tokens
    that were committed since it was there last, at least one. ``max_wait_ms``: a model launches
    when a request has waited so long (None or infinite: never for that reason). ``hop_ms``: from
    one model's step into another's queue. The warm-up is a tenth of the duration unless given.

    Raises:
        ConfigError: thresholds that are not legal, tapes for other models, no time to simulate, or
            one in which there are more than ``most_steps``.
    """
    checked = system.check(tapes.requests, thresholds)
    tick = system.tick_ms or FINE_TICK_MS
    width = round(duration_ms / WINDOWS / tick)
    warm_up = WARM_UP * duration_ms if warm_up_ms is None else warm_up_ms
    if tapes.models > system.size:
        raise ConfigError(f"tapes: {tapes.models} models, but the system has {system.size}")
    if width < 1 or min(warm_up, hop_ms) < 0 or not (max_wait_ms is None or max_wait_ms > 0):
        raise ConfigError(
            f"events: {duration_ms} ms after {warm_up} ms, waits of at most {max_wait_ms} ms and "
            f"hops of {hop_ms} ms cannot be simulated in ticks of {tick} ms"
        )
    rules = Rules(
        *_latencies(system, tapes.requests, tick),
        numpy.array([system.limit(m, tapes.requests) for m in range(system.size)]),
        numpy.array(checked),
        round(hop_ms / tick),
        NEVER if max_wait_ms in (None, inf) else max(1, round(max_wait_ms / tick)),
    )
    steps = Steps(tapes.first, tapes.following, tapes.committed, tapes.lengths)
    state = blank_state(system.size, tapes.requests)
    sums = blank_sums(system.size, tapes.requests, round(warm_up / tick), width, WINDOWS)
    if not event_loop.run(rules, steps, state, sums, most_steps):
        raise ConfigError(
            f"events: more than {most_steps} steps in {duration_ms:g} ms after {warm_up:g} ms; "
            "simulate less time, or look for latencies that are far too short"
        )
    return trace_of(checked, sums, int(state.laps.max()), tick)


def compare(
    system: System,
    vectors: Sequence[Sequence[int]],
    concurrency: int,
    steps: int | None = None,
    seed: int = 0,
    max_wait_ms: float | None = None,
    hop_ms: float = 0.0,
) -> list[Trace]:
    """Each threshold vector on the same drawn decisions, for the time of ``steps`` steps.

    That time is counted without waits: what waits makes fewer steps. The default, 200,000 and at
    least 4,000 a request, takes under 0.1 s a vector and gives throughput to about 0.3 %.

    Raises:
        ConfigError: as `simulate` does.
    """
    steps = max(200_000, 4_000 * concurrency) if steps is None else steps
    best = [system.latencies(m, concurrency).min() for m in range(system.size)]
    duration = steps / concurrency * float(system.visit_shares @ best)
    tapes = draw(system, concurrency, int(1.3 * steps / concurrency) + 1000, seed)
    return [
        simulate(system, vector, tapes, duration, max_wait_ms=max_wait_ms, hop_ms=hop_ms)
        for vector in vectors
    ]


def _latencies(system: System, concurrency: int, tick: float) -> tuple[Floats, Floats]:
    """Ticks, not yet rounded: (M, N) by batch size without tokens, and (M,) a token."""
    base = numpy.zeros((system.size, concurrency))
    for index, model in enumerate(system.models):
        for size in range(1, system.limit(index, concurrency) + 1):
            base[index, size - 1] = model.latency.at(size, 0.0) / tick
    return base, numpy.array([model.latency.per_token / tick for model in system.models])
