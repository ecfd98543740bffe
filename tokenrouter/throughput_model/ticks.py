"""Latencies of a system in whole ticks, for the exact chain (`chain.py`).

Latencies are rounded to ticks, never truncated. A tick that was asked for must divide every
latency. Otherwise it is 0.1 ms if that divides them all, or else the longest tick of at most a
twentieth of the shortest latency that changes none by more than 0.2 %. A longer one would make
batches complete together that do not (up to 5 % off at half the shortest latency); where this one
gives too many states, simulation is the more exact.
"""

from __future__ import annotations

from functools import lru_cache

import numpy
from numpy.typing import NDArray

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.parameters import Floats, System

USUAL_TICK_MS = 0.1
ROUNDING = 2e-3
"""Largest relative change of a latency by a tick that is chosen."""
DIVIDES = 1e-6
"""A latency this close to a whole number of ticks, relatively, is one."""
COARSEST, FINEST = 20, 250
"""Ticks in the shortest latency; half of one in FINEST is just the largest change allowed."""


@lru_cache(maxsize=8)
def in_ticks(system: System, concurrency: int) -> tuple[float, NDArray[numpy.int32]]:
    """The tick in ms, and (M, N + 1) ticks of a step of each model by its batch size.

    Batch size 0, and sizes above a model's limit, have 0 ticks.

    Raises:
        ConfigError: the system's ``tick_ms`` does not divide a latency.
    """
    latencies = [system.latencies(model, concurrency) for model in range(system.size)]
    tick = _chosen(numpy.concatenate(latencies)) if system.tick_ms is None else system.tick_ms
    ticks = numpy.zeros((system.size, concurrency + 1), numpy.int32)
    for model, (own, row) in enumerate(zip(latencies, ticks, strict=True)):
        if system.tick_ms is not None:
            _check(system.models[model].name, own, tick)
        row[1 : len(own) + 1] = numpy.rint(own / tick)
    return tick, ticks


def _change(latencies: Floats, tick: float) -> Floats:
    """By how much rounding to ticks changes each latency, relatively; at least one tick each."""
    change: Floats = abs(numpy.maximum(numpy.rint(latencies / tick), 1.0) * tick / latencies - 1.0)
    return change


def _check(name: str, latencies: Floats, tick: float) -> None:
    for size, latency in enumerate(latencies, 1):
        if _change(numpy.array([latency]), tick)[0] > DIVIDES:
            raise ConfigError(
                f"tick_ms: {tick:g} ms does not divide {latency:g} ms, the latency of {name} at "
                f"batch size {size}; give a tick that does, or none"
            )


def _chosen(latencies: Floats) -> float:
    if (_change(latencies, USUAL_TICK_MS) <= DIVIDES).all():
        return USUAL_TICK_MS
    shortest = float(latencies.min())
    for parts in numpy.arange(COARSEST, FINEST, 0.25):
        if (_change(latencies, shortest / parts) <= ROUNDING).all():
            return shortest / float(parts)
    return shortest / FINEST
