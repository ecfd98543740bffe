"""Systems drawn at random, small enough for an exact chain, that two predictors must agree on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.chain import exact
from tokenrouter.throughput_model.parameters import (
    Floats,
    Latency,
    Model,
    Prediction,
    System,
    Thresholds,
)

MAX_CONCURRENCY = 12
TICK_MS = 0.1
"""No binary fraction: 0.3 ms are 2.9999999999999996 of it, and must count as three."""
TICKS = (2, 15)
"""Latencies, the shortest and the longest."""
RARE = 0.1
"""Weight of the rarest hop that happens; the others' are up to 1.1. With rarer ones a system stays
in one mood for so long that batch means no longer tell how wrong they are."""


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """A system with thresholds, and its exact prediction."""

    system: System
    thresholds: Thresholds
    exact: Prediction

    def __str__(self) -> str:
        latencies = [dict(model.latency.table) for model in self.system.models]
        limits = [model.max_batch for model in self.system.models]
        return (
            f"N={self.exact.concurrency} thresholds={self.thresholds} latencies={latencies} "
            f"limits={limits} routing={self.system.routing.round(3).tolist()} "
            f"committed={self.system.committed.round(3).tolist()} states={self.exact.states}"
        )


def draw(seed: int) -> Case:
    """M = 2 to 4, batch-dependent latencies, batch limits, sparse routing, any commits.

    Of the concurrencies from one drawn number down, the first whose chain is small enough.
    """
    random = numpy.random.default_rng([2026, seed])
    size = int(random.integers(2, 5))
    routing, committed = _routing(random, size), _committed(random, size)
    for concurrency in range(int(random.integers(2, MAX_CONCURRENCY + 1)), 0, -1):
        models = tuple(_model(random, f"m{index}", concurrency) for index in range(size))
        system = System(models, routing, committed, tick_ms=TICK_MS)
        thresholds = _thresholds(random, system, concurrency)
        try:
            return Case(system, thresholds, exact.predict(system, concurrency, thresholds))
        except exact.TooManyStatesError:
            continue
    raise RuntimeError(f"no concurrency of system {seed} has a small chain")


def _routing(random: numpy.random.Generator, size: int) -> Floats:
    """Any stochastic matrix in which all models lead to each other; some have zeros or ones."""
    certain = random.choice([0.0, 0.3, 1.0], p=[0.6, 0.3, 0.1])
    while True:
        odds = RARE + random.random((size, size)) ** 2
        odds *= random.random((size, size)) < random.choice([0.5, 0.8, 1.0])
        for row in odds[random.random(size) < certain]:
            row *= row == row.max()
        rows: Floats = odds / numpy.maximum(odds.sum(axis=1, keepdims=True), 1e-300)
        models = tuple(Model(f"m{index}", Latency(1.0)) for index in range(size))
        try:
            System(models, rows, numpy.ones((size, size)))
        except ConfigError:
            continue
        return rows


def _committed(random: numpy.random.Generator, size: int) -> Floats:
    """Tokens that are whole, of expectations, or one for each hop."""
    kind = random.integers(3)
    if kind == 0:
        return numpy.ones((size, size))
    if kind == 1:
        return 1.0 + random.integers(0, 3, (size, size))
    return 0.05 + 3.0 * random.random((size, size))


def _model(random: numpy.random.Generator, name: str, concurrency: int) -> Model:
    """Ticks that stay, grow or jump with the batch."""
    ticks = random.integers(*TICKS, endpoint=True, size=concurrency)
    kind = random.integers(3)
    if kind == 0:
        ticks[:] = ticks[0]
    elif kind == 1:
        ticks.sort()
    limit = int(random.integers(1, concurrency + 1)) if random.random() < 0.4 else None
    table = {batch + 1: float(tick) / 10 for batch, tick in enumerate(ticks)}
    return Model(name, Latency(table=table), limit)


def _thresholds(random: numpy.random.Generator, system: System, concurrency: int) -> Thresholds:
    """Any that cannot deadlock."""
    left = int(random.integers(concurrency))
    thresholds = [1] * system.size
    for model in random.permutation(system.size):
        delay = int(random.integers(min(left, system.limit(int(model), concurrency) - 1) + 1))
        thresholds[model] += delay
        left -= delay
    return tuple(thresholds)
