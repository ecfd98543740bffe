"""From measurements to parameters."""

from __future__ import annotations

import math

import numpy
import pytest
from msgspec.structs import astuple, replace

from tests.calibration.fakes import measurements, pair, steps
from tokenrouter.calibration.facts import Facts
from tokenrouter.calibration.findings import find, shares
from tokenrouter.calibration.windows import Reading, Window, between
from tokenrouter.errors import MeasurementError
from tokenrouter.ipc.member_state import Measurements, StepSums
from tokenrouter.throughput_model.planning import parameter_writing

pytestmark = pytest.mark.timeout(60)

FACTS = Facts("demo", "random", ("small", "large"), (8, 4), 0.3, (0.0, 1.0))


def measured(before: tuple[Measurements, ...], after: tuple[Measurements, ...]) -> list[Window]:
    return [between(2, [Reading(before, (1, 1)), Reading(after, (1, 1))])]


def test_routing_and_latencies_are_those_between_the_readings() -> None:
    found = find(FACTS, measured(pair(0.0, 700, 900), pair(9.0, 1400, 1200)))
    small, large = found.models
    stay, leave = small.hops
    assert (stay.to, leave.to) == ("small", "large")
    assert leave.share == pytest.approx(0.3) and leave.committed == 0 and stay.committed == 1
    assert leave.stderr == pytest.approx(math.sqrt(0.3 * 0.7 / 1000))
    assert [batch.size for batch in small.batches] == [1]
    assert small.batches[0].ms == pytest.approx(6.0) == small.batches[0].model_ms
    assert large.batches[0].steps == 300 and large.mean_run == 1.0
    system = found.parameters.system
    assert numpy.allclose(system.routing, [[0.7, 0.3], [1.0, 0.0]])
    assert [model.max_batch for model in system.models] == [8, 4]
    assert found.parameters.concurrency == (2,)


def test_the_standard_error_of_a_latency() -> None:
    before, after = pair(0.0, 0, 0), pair(9.0, 700, 300)
    slow, fast = steps(50, 0.008, 2), steps(50, 0.004, 2)
    both = StepSums(*map(sum, zip(astuple(slow), astuple(fast), strict=True)))
    changed = replace(after[0], steps={2: both})
    batch = find(FACTS, measured(before, (changed, after[1]))).models[0].batches[0]
    assert (batch.ms, batch.stderr_ms) == pytest.approx((6.0, 0.2))
    assert batch.tokens == 1.0


def test_a_single_slow_step_of_a_size_says_nothing() -> None:
    before, after = pair(0.0, 0, 0), pair(9.0, 700, 300)
    after[1].steps[4] = steps(1, 0.94, 4)
    large = find(FACTS, measured(before, after)).parameters.system.models[1].latency
    assert large.at(4, 4) == pytest.approx(20.0, rel=0.05)


def test_prompts_cost_their_model_time() -> None:
    before, after = pair(0.0, 0, 0), pair(9.0, 700, 300)
    busy = replace(after[1], prefill=steps(10, 0.06, 40))
    large = find(FACTS, measured(before, (after[0], busy))).models[1].batches[0]
    assert large.ms == pytest.approx(20.0)
    assert large.model_ms == pytest.approx(20.0 / (1 - 0.6 / 9.0), abs=1e-3), "of 9 s"


def test_runs_of_one_length_are_kept_for_the_plan() -> None:
    before, after = pair(0.0, 0, 0), pair(9.0, 2400, 600)
    always_five = measurements(9.0, 2400, 600, 0.006, 0)
    always_five.runs.clear()
    always_five.runs[5] = 600
    found = find(FACTS, measured(before, (always_five, after[1])))
    assert not found.models[0].geometric and found.models[0].mean_run == 5.0
    assert found.parameters.runs == {"small": {5: 1.0}}
    written = parameter_writing.write(found.parameters)
    assert "runs: {5: 1.0}" in written and "{1: 6.0," in written


def test_a_model_that_nothing_comes_back_from() -> None:
    before, after = pair(0.0, 0, 0), pair(9.0, 700, 300)
    stays = measurements(9.0, 300, 0, 0.02, 1)
    with pytest.raises(MeasurementError, match=r"makes no system: .*; measure for more --seconds"):
        find(FACTS, measured(before, (after[0], stays)))


def test_shares_are_short() -> None:
    assert shares({4: 1, 2: 2}) == {2: 0.666667, 4: 0.333333}
    assert shares({1: 10_000_000, 9: 1}) == {1: 1.0}
