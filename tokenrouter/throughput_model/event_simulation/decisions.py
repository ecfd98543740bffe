"""Decisions of requests, step by step, as `events.py` replays them.

Drawn from a `System` (`draw`), from several (`bursty`, `classes`), or from the lengths of runs that
a deployment measured (`from_runs`); or recorded by a server (`load`). Whatever thresholds are tried
on them, a request decides the same: predictions differ by the thresholds alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy
from numpy.typing import NDArray

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.event_simulation.decision_tapes import Commits, Models, Tapes
from tokenrouter.throughput_model.event_simulation.recorded import load, outline
from tokenrouter.throughput_model.event_simulation.walks import cumulative, hazard, walk, walk_runs
from tokenrouter.throughput_model.parameters import System

__all__ = ["Tapes", "bursty", "classes", "draw", "from_runs", "load", "outline", "staggered"]
REQUEST_STEPS = 300.0
"""Steps of a request on average, where lengths of runs are given."""


def draw(system: System, requests: int, steps: int, seed: int) -> Tapes:
    """Decisions of a memoryless algorithm: each step on m leads to k with routing[m, k].

    Tapes start and end in the queue of model 0, with at most ``steps`` steps. Those of request i
    depend on ``seed`` and i only: more requests or steps extend them.

    Raises:
        ConfigError: ``steps`` are too few for some request to come back to model 0.
    """
    return _draw([system], requests, steps, seed, 0.0)


def bursty(
    system: System, other: System, requests: int, steps: int, seed: int, mean_stretch: float
) -> Tapes:
    """Each request alternates between two systems, after ``mean_stretch`` steps on average.

    Stretches are geometric; the request starts in the first one. Raises as `draw` does.
    """
    if system.size != other.size:
        raise ConfigError("bursty: both systems must have the same models")
    if not mean_stretch >= 1:
        raise ConfigError(f"mean_stretch: must be at least 1 step, got {mean_stretch}")
    return _draw([system, other], requests, steps, seed, 1.0 / mean_stretch)


def classes(members: Sequence[tuple[System, int]], steps: int, seed: int) -> Tapes:
    """Requests of several kinds: (system, their number) each; all end in one set of tapes.

    Their ages are mixed evenly, since an older request is served first: in the order of
    (i + 1/2) / n of the i-th of n of a class. Raises as `draw` does.
    """
    parts = [
        draw(system, count, steps, seed + 7919 * index)
        for index, (system, count) in enumerate(members)
        if count
    ]
    ages = [(numpy.arange(count) + 0.5) / count for _, count in members if count]
    order = numpy.argsort(numpy.concatenate(ages), kind="stable")
    return Tapes(
        numpy.concatenate([part.first for part in parts])[order],
        numpy.concatenate([part.following for part in parts])[order],
        numpy.concatenate([part.committed for part in parts])[order],
        numpy.concatenate([part.lengths for part in parts])[order],
    )


def from_runs(
    system: System,
    runs: Sequence[Mapping[int, float]],
    requests: int,
    steps: int,
    seed: int,
    mean_steps: float = REQUEST_STEPS,
) -> Tapes:
    """Decisions whose spacing is not geometric.

    ``runs[m]``: {n: how often, or how likely, a request left m after n steps in a row}; empty:
    geometric, by ``system.routing``. Which model follows a run is drawn from ``system.routing``
    without staying; tokens are ``system.committed``. A draft of 5 and one step that checks it:
    [{5: 1}, {1: 1}].

    ``mean_steps`` of a request, after which another takes its place, on model 0; infinite: it
    never ends. With runs of fixed length, requests that never end would stay in step, or out of
    it, for ever because they began so, whatever the thresholds.

    Raises:
        ConfigError: a run has no length, or ``steps`` are too few to come back to model 0.
    """
    if not mean_steps >= 1:
        raise ConfigError(f"mean_steps: must be at least 1 step, got {mean_steps}")
    if len(runs) != system.size or system.size < 2:
        raise ConfigError(
            f"runs: {len(runs)} distributions for {system.size} models; give each one"
        )
    longest = max((n for lengths in runs for n, count in lengths.items() if count), default=1)
    stays = system.routing.diagonal()
    hazards = numpy.stack([hazard(runs[m], longest, 1.0 - stays[m]) for m in range(system.size)])
    leaving = system.routing * (1.0 - numpy.eye(system.size))
    rows = cumulative(leaving / leaving.sum(axis=1, keepdims=True))
    committed = system.committed.astype(numpy.float32)
    ends = 1.0 / mean_steps
    following, kept = _blank(requests, steps)
    lengths_of = numpy.empty(requests, numpy.int64)
    for request in range(requests):
        uniform = numpy.random.default_rng([seed, request]).random((steps, 3))
        lengths_of[request] = walk_runs(
            uniform, ends, hazards, rows, committed, following[request], kept[request]
        )
    return _tapes(following, kept, lengths_of)


def staggered(tapes: Tapes, seed: int) -> Tapes:
    """The same decisions, each request beginning somewhere in its own."""
    generator = numpy.random.default_rng(seed)
    first, following, committed = tapes.first.copy(), tapes.following.copy(), tapes.committed.copy()
    for request, length in enumerate(tapes.lengths):
        begin = int(generator.integers(length))
        for steps in (following, committed):
            steps[request, :length] = numpy.roll(steps[request, :length], -begin)
        first[request] = following[request, length - 1]
    return Tapes(first, following, committed, tapes.lengths)


def _draw(systems: Sequence[System], requests: int, steps: int, seed: int, flip: float) -> Tapes:
    rows = numpy.stack([cumulative(system.routing) for system in systems])
    committed = numpy.stack([system.committed for system in systems]).astype(numpy.float32)
    following, kept = _blank(requests, steps)
    lengths = numpy.empty(requests, numpy.int64)
    for request in range(requests):
        uniform = numpy.random.default_rng([seed, request]).random((steps, 1 + (flip > 0)))
        lengths[request] = walk(uniform, flip, rows, committed, following[request], kept[request])
    return _tapes(following, kept, lengths)


def _blank(requests: int, steps: int) -> tuple[Models, Commits]:
    if requests < 1 or steps < 1:
        raise ConfigError(f"tapes: {requests} requests of {steps} steps; both must be from 1 on")
    return numpy.zeros((requests, steps), numpy.int8), numpy.zeros((requests, steps), numpy.float32)


def _tapes(following: Models, committed: Commits, lengths: NDArray[numpy.int64]) -> Tapes:
    if not lengths.all():
        raise ConfigError(
            f"tapes: in {following.shape[1]} steps a request never came back to the first model; "
            "draw more steps"
        )
    return Tapes(numpy.zeros(len(lengths), numpy.int8), following, committed, lengths)
