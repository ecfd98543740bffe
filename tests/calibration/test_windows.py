"""Differences of readings, and whether they say enough."""

from __future__ import annotations

import math

import pytest

from tests.calibration.fakes import pair
from tokenrouter.calibration.windows import Reading, Window, between, check, totals
from tokenrouter.errors import MeasurementError
from tokenrouter.ipc.member_state import Measurements

pytestmark = pytest.mark.timeout(20)

NAMES = ("small", "large")
Pair = tuple[Measurements, ...]


def window(before: Pair, after: Pair) -> Window:
    return between(4, [Reading(before, (1, 2)), Reading(after, (1, 2))])


def test_rates() -> None:
    found = window(pair(1.0, 100, 10), pair(3.0, 300, 50))
    assert found.tokens_per_s == pytest.approx((200 + 40) / 2)
    assert found.live == pytest.approx(1.0)
    assert found.thresholds == (1, 2)


def test_thresholds_that_changed_are_not_told() -> None:
    members = pair(1.0, 1, 1), pair(2.0, 2, 2), pair(3.0, 3, 3)
    there_and_back = zip(members, [(1, 1), (1, 2), (1, 1)], strict=True)
    assert between(2, [Reading(*each) for each in there_and_back]).thresholds is None


def test_batch_means() -> None:
    counts = [pair(0.0, 0, 0), pair(1.0, 90, 10), pair(2.0, 200, 20), pair(3.0, 300, 30)]
    found = between(2, [Reading(each, (1, 1)) for each in counts])
    assert found.parts == (100.0, 120.0, 110.0)
    assert found.tokens_per_s == pytest.approx(110.0)
    assert found.stderr == pytest.approx(10 / math.sqrt(3))
    assert window(counts[0], counts[1]).stderr is None


def test_what_happened_between_windows_does_not_count() -> None:
    first = window(pair(0.0, 0, 0), pair(1.0, 100, 30))
    second = window(pair(5.0, 900, 300), pair(7.0, 1000, 320))
    small, large = totals([first, second])
    assert small.hops == {0: (200, 200), 1: (50, 0)} and small.at == 3.0
    assert large.steps[1].count == 50


@pytest.mark.parametrize("after", [pair(0.5, 500, 99), pair(9.0, 50, 9)])
def test_a_restart_is_noticed(after: Pair) -> None:
    with pytest.raises(MeasurementError, match="restarted while it was measured"):
        window(pair(1.0, 100, 10), after)


@pytest.mark.parametrize(
    ("after", "complaint"),
    [
        (pair(10.0, 500, 0), "no request was handed over to large; .*--share"),
        (pair(10.0, 500, 10), "only 10 hand-overs happened, 20 are needed; .* --seconds 30$"),
        (pair(10.0, 500, 25), "only 25 steps of large were measured, 50 .* --seconds 30$"),
    ],
)
def test_what_is_too_little(after: Pair, complaint: str) -> None:
    with pytest.raises(MeasurementError, match=complaint):
        check([window(pair(0.0, 0, 0), after)], NAMES)


def test_enough_in_all_windows_together() -> None:
    first = window(pair(0.0, 0, 0), pair(9.0, 90, 30))
    second = window(pair(9.0, 90, 30), pair(18.0, 180, 60))
    with pytest.raises(MeasurementError, match="only 30 steps of large"):
        check([first], NAMES)
    check([first, second], NAMES)
