"""Predictions for one concurrency: which method, and numbers that are known otherwise."""

from __future__ import annotations

import math

import numpy
import pytest

from tests.throughput_model.plans import MODELS, pair, parameters
from tokenrouter.throughput_model.chain.exact import predict
from tokenrouter.throughput_model.planning.parameter_file import RequestClass
from tokenrouter.throughput_model.planning.scoring import Scorer, shared_out
from tokenrouter.throughput_model.systems import speculative


def scorer(concurrency: int = 4, **changes: object) -> Scorer:
    return Scorer(parameters(**changes), concurrency, seed=0)


def test_shares_of_requests_are_whole_and_all() -> None:
    assert shared_out([0.5, 0.5], 5) == [3, 2]
    assert shared_out([0.2, 0.3, 0.5], 10) == [2, 3, 5]
    assert shared_out([0.26, 0.26, 0.48], 3) == [1, 1, 1]
    assert shared_out([0.5, 0.5], 1) == [1, 0]


def test_the_chain_where_it_knows_all() -> None:
    found = scorer().predict((1, 3))
    assert found == predict(pair(), 4, (1, 3))
    assert scorer(max_wait_ms=math.inf).predict((1, 3)) == found


def test_its_longest_wait_is_the_servers() -> None:
    assert scorer().max_wait_ms == pytest.approx(279.0)
    assert scorer(max_wait_ms=math.inf).max_wait_ms is None
    assert scorer(max_wait_ms=50.0).max_wait_ms == 50.0


def test_gaps_and_waits_of_one_request_alone() -> None:
    """It never waits; its tokens take 6 ms, or 33.9 ms from the large model."""
    tail = scorer(1).tail((1, 1))
    assert tail.itl_p50_ms == pytest.approx(6.0, rel=0.003)
    assert tail.itl_p99_ms == pytest.approx(33.9, rel=0.003)
    assert tail.wait_ms == (0.0, 0.0)
    assert tail.expired == 0.0
    assert scorer(1).itl_p99_ms((1, 1)) == tail.itl_p99_ms


def test_classes_that_are_alike_are_one() -> None:
    halves = (RequestClass(0.5, pair()), RequestClass(0.5, pair()))
    found = scorer(classes=halves).predict((1, 3))
    assert (found.method, found.states) == ("simulated", 0)
    assert found.tokens_per_s == pytest.approx(207.95, abs=4 * found.stderr)
    assert found.stderr < 0.5


def test_classes_that_differ_are_not_their_mean() -> None:
    """Known: half of the requests at .02, half at .18, and a threshold that waits for all.

    The routing of all steps together then predicts 28 % too much, and p99 is 432 ms.
    """
    halves = (RequestClass(0.5, pair(0.02)), RequestClass(0.5, pair(0.18)))
    both = scorer(classes=halves, max_wait_ms=math.inf)
    found = both.predict((1, 4))
    steps = numpy.multiply(found.utilisation, found.mean_batch) / (6.0, 27.9)
    pooled = predict(pair(steps[1] / steps[0]), 4, (1, 4))
    assert pooled.tokens_per_s / found.tokens_per_s == pytest.approx(1.28, abs=0.02)
    assert both.itl_p99_ms((1, 4)) == pytest.approx(432.0, rel=0.05)


def drafts(concurrency: int) -> Scorer:
    """Five drafted tokens and a check."""
    system = speculative(MODELS, acceptance=0.5, draft_length=5)
    runs = {"small": {5: 1.0}, "large": {1: 1.0}}
    return Scorer(parameters(system=system, runs=runs), concurrency, seed=0)


def test_runs_of_fixed_length() -> None:
    """Alone, 57.9 ms for what a check commits; a request's last draft may be cut off."""
    full = 1e3 * (1 - 0.5**6) / 0.5 / 57.9
    assert 0.99 * full < drafts(1).predict((1, 1)).tokens_per_s < full


def test_requests_that_begin_in_step_do_not_stay_so() -> None:
    """Otherwise thresholds of 1 would never part them, and none could be better."""
    four = drafts(4)
    ones, waiting = four.predict((1, 1)), four.predict((1, 2))
    assert waiting.tokens_per_s > 1.25 * ones.tokens_per_s


def test_runs_say_how_often_a_model_is_left() -> None:
    """Whatever the routing matrix says: the bound is of drafts of five, one check each."""
    runs = {"small": {4: 0.5, 6: 0.5}, "large": {1: 1.0}}
    found = Scorer(parameters(runs=runs), 1, seed=0)
    assert found.system.routing == pytest.approx(pair(0.2).routing)
    assert found.bound == pytest.approx(1e3 * 5 / 57.9)
    assert found.predict((1, 1)).tokens_per_s == pytest.approx(found.bound, rel=0.01)


def test_classes_together_are_bounded_by_what_each_is() -> None:
    """Two at .02, two at .18: none waits for anything, or the large model takes all at once."""
    halves = (RequestClass(0.5, pair(0.02)), RequestClass(0.5, pair(0.18)))
    both = scorer(classes=halves)
    alone = [2e3 / (6.0 + p * 27.9) for p in (0.02, 0.18)]
    assert both.bound == pytest.approx(sum(alone))
    assert both.bound > scorer(system=pair(0.1)).bound
    assert both.predict((1, 1)).tokens_per_s <= both.bound


def test_a_short_wait_launches_what_would_wait_longer() -> None:
    patient, hurried = scorer(), scorer(max_wait_ms=1.0)
    ones = patient.predict((1, 1))
    found = hurried.predict((1, 4))
    assert found.method == "simulated"
    assert found.mean_batch[1] < 0.6 * patient.predict((1, 4)).mean_batch[1]
    assert hurried.tail((1, 4)).expired > 1.0
    assert found.tokens_per_s == pytest.approx(ones.tokens_per_s, rel=0.1)
