"""Latencies of a system in whole ticks, for the exact chain (`chain.py`).

Latencies are rounded to ticks, never truncated. A tick that was asked for must divide every
latency. Otherwise it is 0.1 ms if that divides them all, or else the longest tick of at most a
twentieth of the shortest latency that changes none by more than 0.1 % and leaves no two models
commensurate that were not: batches would complete together that do not (7.859 and 31.476 ms as 20
and 80 ticks: 2.7 % off). Where such a tick gives too many states, simulation is more exact than a
longer one (up to 5 % off at half the shortest latency).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

import numpy
from numpy.typing import NDArray

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.parameters import Floats, System

USUAL_TICK_MS = 0.1
ROUNDING = 1e-3
"""Largest relative change of a latency by a tick that is chosen."""
DIVIDES = 1e-6
"""A latency this close to a whole number of ticks, relatively, is one."""
COARSEST, FINEST = 20, 500
"""Ticks in the shortest latency; half of one in FINEST is just the largest change allowed."""
MOST = 2**30
"""Ticks in a latency; residual times are 32 bits."""


@lru_cache(maxsize=8)
def in_ticks(system: System, concurrency: int) -> tuple[float, NDArray[numpy.int32]]:
    """The tick in ms, and (M, N + 1) ticks of a step of each model by its batch size.

    Batch size 0, and sizes above a model's limit, have 0 ticks.

    Raises:
        ConfigError: the system's ``tick_ms`` does not divide a latency, or the longest latency is
            too many ticks.
    """
    latencies = [system.latencies(model, concurrency) for model in range(system.size)]
    if system.tick_ms is None:
        tick = _chosen(latencies)
    else:
        tick = system.tick_ms
        for model, own in zip(system.models, latencies, strict=True):
            _check(model.name, own, tick)
    _check_longest(system, latencies, tick)
    ticks = numpy.zeros((system.size, concurrency + 1), numpy.int32)
    for own, row in zip(latencies, ticks, strict=True):
        row[1 : len(own) + 1] = _rounded(own, tick)
    return tick, ticks


def _rounded(latencies: Floats, tick: float) -> NDArray[numpy.int64]:
    return numpy.maximum(numpy.rint(latencies / tick), 1).astype(numpy.int64)


def _change(latencies: Floats, tick: float) -> Floats:
    """By how much rounding to ticks changes each latency, relatively."""
    change: Floats = abs(_rounded(latencies, tick) * tick / latencies - 1.0)
    return change


def _check(name: str, latencies: Floats, tick: float) -> None:
    change = _change(latencies, tick)
    worst = int(change.argmax())
    if change[worst] > DIVIDES:
        raise ConfigError(
            f"tick_ms: {tick:g} ms does not divide {latencies[worst]:g} ms, the latency of {name} "
            f"at batch size {worst + 1}; give a tick that does, or none"
        )


def _check_longest(system: System, latencies: Sequence[Floats], tick: float) -> None:
    longest, slowest = max((float(own.max()), m) for m, own in enumerate(latencies))
    shortest, fastest = min((float(own.min()), m) for m, own in enumerate(latencies))
    if longest > MOST * tick:
        remedy = (
            "give a longer one"
            if system.tick_ms is not None
            else f"it follows from the {shortest:g} ms of {system.models[fastest].name}: leave out "
            "what is so much faster or slower"
        )
        raise ConfigError(
            f"tick_ms: {tick:g} ms is too short for the {longest:g} ms of "
            f"{system.models[slowest].name}; {remedy}"
        )


def _chosen(latencies: Sequence[Floats]) -> float:
    every = numpy.concatenate(latencies)
    if (_change(every, USUAL_TICK_MS) <= DIVIDES).all():
        return USUAL_TICK_MS
    shortest = float(every.min())
    for parts in numpy.arange(COARSEST, FINEST, 0.25):
        tick = shortest / float(parts)
        if (_change(every, tick) <= ROUNDING).all() and not _aligns(latencies, tick):
            return tick
    return shortest / FINEST


def _aligns(latencies: Sequence[Floats], tick: float) -> bool:
    """Whether two models become commensurate in ticks that are not."""
    for one, other in combinations(latencies, 2):
        both = numpy.concatenate([one, other])
        common = int(numpy.gcd.reduce(_rounded(both, tick)))
        if common > 1 and (_change(both, tick * common) > DIVIDES).any():
            return True
    return False
