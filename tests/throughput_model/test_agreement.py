"""The exact chain and the event simulation, written apart, agree on 200 random systems.

Both start with all requests in the first queue, and process all completions of one instant before
they launch anything. The mutants show that the comparison sees such a difference.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numba
import numpy
import pytest

from tests.throughput_model import random_systems
from tests.throughput_model.random_systems import TICK_MS, Case
from tokenrouter.throughput_model.chain import exact
from tokenrouter.throughput_model.event_simulation import event_loop, events
from tokenrouter.throughput_model.event_simulation.event_state import (
    NEVER,
    Rules,
    State,
    Steps,
    Sums,
)
from tokenrouter.throughput_model.event_simulation.trace import Trace
from tokenrouter.throughput_model.parameters import Latency, Prediction, System, Thresholds

QUICK, ALL = 20, 200
STDERR = 0.00075
SLACK = 0.0002
STEPS = 250_000
SEEDS = [
    *range(QUICK),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(QUICK, ALL)),
]


@dataclass(frozen=True)
class Simulated:
    """Tokens/s and standard error; utilisation, mean queue and mean batch of each model."""

    tokens_per_s: float
    stderr: float
    figures: tuple[float, ...]

    def agrees(self, tokens_per_s: float) -> bool:
        margin = 4 * self.stderr + SLACK * tokens_per_s
        return abs(self.tokens_per_s - tokens_per_s) <= margin


def figures(found: Trace | Prediction) -> tuple[float, ...]:
    return (*found.utilisation, *found.mean_queue, *found.mean_batch)


def simulate(case: Case) -> Simulated:
    """The mean of as many runs as make the standard error small enough."""
    means: list[float] = []
    variance = 0.0
    seen: list[tuple[float, ...]] = []
    while not means or math.sqrt(variance) > STDERR * sum(means):
        (trace,) = events.compare(
            case.system, [case.thresholds], case.exact.concurrency, STEPS, seed=len(means)
        )
        mean, stderr = trace.expected(case.system)
        means.append(mean)
        seen.append(figures(trace))
        variance += stderr**2
    count = len(means)
    return Simulated(
        sum(means) / count, math.sqrt(variance) / count, tuple(numpy.mean(seen, axis=0))
    )


@functools.cache
def both(seed: int) -> tuple[Case, Simulated]:
    case = random_systems.draw(seed)
    return case, simulate(case)


@pytest.mark.parametrize("seed", SEEDS)
def test_chain_and_events_agree(seed: int) -> None:
    case, found = both(seed)
    assert found.stderr <= STDERR * found.tokens_per_s
    assert found.agrees(case.exact.tokens_per_s), f"{found}, not {case.exact}: {case}"
    assert found.figures == pytest.approx(figures(case.exact), rel=0.02, abs=0.02), str(case)


def truncated(case: Case) -> tuple[System, Thresholds]:
    """27.9 / 0.1 cut to 278 ticks."""

    def cut(latency: Latency) -> Latency:
        ticks = {batch: int(ms / TICK_MS) for batch, ms in latency.table.items()}
        return Latency(table={batch: TICK_MS * tick for batch, tick in ticks.items()})

    models = tuple(replace(each, latency=cut(each.latency)) for each in case.system.models)
    return replace(case.system, models=models), case.thresholds


def unlimited(case: Case) -> tuple[System, Thresholds]:
    """No batch limits."""
    models = tuple(replace(each, max_batch=None) for each in case.system.models)
    return replace(case.system, models=models), case.thresholds


def late(case: Case) -> tuple[System, Thresholds]:
    """A threshold one too low, where there is any."""
    return case.system, tuple(max(1, threshold - 1) for threshold in case.thresholds)


@pytest.mark.parametrize(("mutant", "least"), [(truncated, 12), (unlimited, 5), (late, 10)])
def test_a_chain_that_is_wrong_disagrees(
    mutant: Callable[[Case], tuple[System, Thresholds]], least: int
) -> None:
    wrong = 0
    for seed in range(QUICK):
        case, found = both(seed)
        system, thresholds = mutant(case)
        other = exact.predict(system, case.exact.concurrency, thresholds, max_states=100_000)
        wrong += not found.agrees(other.tokens_per_s)
    assert wrong >= least


@numba.njit
def one_at_a_time(rules: Rules, steps: Steps, state: State, sums: Sums, most: int) -> bool:
    """`event_loop.run`, but whatever can launch after each completion does."""
    horizon = sums.begin + sums.width * len(sums.windows)
    for request in range(len(steps.first)):
        event_loop._enqueue(state, request, steps.first[request], 0)
    now = 0
    while now < horizon:
        for model in range(len(state.end)):
            if state.end[model] == now:
                event_loop._complete(rules, steps, state, sums, model, now)
                break
        for model in range(len(state.end)):
            if state.end[model] == NEVER and state.queued[model] >= rules.thresholds[model]:
                event_loop._launch(rules, state, sums, model, now, False)
        now = event_loop._next(rules, state)
    return True


@pytest.mark.slow
def test_a_simulation_that_launches_between_completions_disagrees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_loop, "run", one_at_a_time)
    cases = [random_systems.draw(seed) for seed in range(QUICK)]
    wrong = [not simulate(case).agrees(case.exact.tokens_per_s) for case in cases]
    assert sum(wrong) >= QUICK / 4
