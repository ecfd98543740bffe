"""Vectors from several beginnings, for as long as they take for the steps that are wanted."""

from __future__ import annotations

import math

import numpy
import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.chain import exact
from tokenrouter.throughput_model.event_simulation import decisions, events
from tokenrouter.throughput_model.event_simulation.replays import Replays
from tokenrouter.throughput_model.parameters import Latency, Model, System
from tokenrouter.throughput_model.systems import r2r, speculative

MODELS = (Model("small", Latency(6.0)), Model("large", Latency(27.9)))


def replays(system: System, requests: int, steps: int = 120_000) -> Replays:
    return Replays(system, decisions.draw(system, requests, 20_000, 0), steps, None)


def test_all_beginnings_together_are_the_chain() -> None:
    system = r2r(MODELS, 0.35, tick_ms=0.1)
    found, known = replays(system, 4).trace((1, 3)), exact.predict(system, 4, (1, 3))
    assert found.tokens_per_s == pytest.approx(known.tokens_per_s, abs=4 * found.stderr)
    assert found.stderr < 0.01 * found.tokens_per_s
    for name in ("utilisation", "mean_queue", "mean_batch"):
        assert getattr(found, name) == pytest.approx(getattr(known, name), rel=0.03)
    through = numpy.array(known.utilisation) * known.mean_batch / (6.0, 27.9)
    little = numpy.array(known.mean_queue) / through
    assert found.mean_wait_ms == pytest.approx(little, rel=0.05)


def test_vectors_that_are_fast_only_in_step_fall_behind() -> None:
    models = (Model("a", Latency(base=58.41)), Model("b", Latency(base=48.01)))
    system = System(models, numpy.array([[0.037, 0.963], [0.83, 0.17]]), numpy.ones((2, 2)))
    tapes = decisions.draw(system, 256, 3000, 0)
    assert events.simulate(system, (73, 17), tapes, 10_000.0).tokens_per_s > 4400
    found = Replays(system, tapes, 200_000, None)
    assert found.trace((73, 17)).tokens_per_s == pytest.approx(3615, rel=0.01)
    assert found.trace((116, 19)).tokens_per_s == pytest.approx(4447, rel=0.01)


def test_drafts_of_one_length_are_the_same_in_every_beginning() -> None:
    system = speculative(MODELS, acceptance=0.5, draft_length=5)
    tapes = decisions.from_runs(system, [{5: 1}, {1: 1}], 4, 50_000, 0)
    ones, waiting = (Replays(system, tapes, 300_000, None).trace(each) for each in ((1, 1), (1, 2)))
    assert waiting.tokens_per_s > 1.25 * ones.tokens_per_s
    assert ones.stderr < 0.01 * ones.tokens_per_s


@pytest.mark.parametrize("large_ms", [1e-3, 27.9, 1e6])
def test_steps_are_about_as_many_as_wanted(large_ms: float) -> None:
    """Even where the tapes never lead to a model that would take very long."""
    models = (MODELS[0], Model("large", Latency(large_ms)))
    system = r2r(models, 1e-9 if large_ms > 100 else 0.35)
    found = replays(system, 8, 60_000)
    assert 6_000 < found.trace((1, 1)).hops.sum() < 120_000


def test_far_too_many_steps_are_refused() -> None:
    system = r2r(MODELS, 0.35)
    tapes = decisions.draw(system, 4, 1000, 0)
    with pytest.raises(ConfigError, match=r"events: more than 5000 steps in 1e\+09 ms after"):
        events.simulate(system, (1, 1), tapes, 1e9, most_steps=5000)
    assert not math.isnan(events.simulate(system, (1, 1), tapes, 1e3, most_steps=5000).itl_p50_ms)
