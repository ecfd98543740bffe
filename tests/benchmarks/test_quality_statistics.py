"""Bootstrap intervals hold the truth, pair what they compare, and curves cross where they do."""

from __future__ import annotations

import numpy
import pytest
from quality_points import Point
from quality_statistics import Resampled, interval

from tests.benchmarks.quality import PROBLEMS, point


def drawn(exact: numpy.ndarray) -> Point:
    ones = numpy.ones(len(exact))
    return Point("drawn", None, None, exact.astype(float), exact.astype(float), ones, ones)


def test_intervals_hold_the_truth_19_times_in_20() -> None:
    rng = numpy.random.default_rng(1)
    resampled = Resampled(200, draws=400)
    found = [interval(resampled.accuracy(drawn(rng.random(200) < 0.7))) for _ in range(400)]
    held = [each.low <= 0.7 <= each.high for each in found]
    assert numpy.mean(held) == pytest.approx(0.95, abs=0.035)


def test_what_two_settings_have_in_common_cancels() -> None:
    resampled = Resampled(PROBLEMS)
    worse, better = point("a", 0.50, 0.0), point("b", 0.53, 0.0)
    paired = interval(resampled.accuracy(better) - resampled.accuracy(worse))
    alone = interval(resampled.accuracy(better))
    assert paired.value == pytest.approx(0.03)
    assert paired.low > 0 and paired.high - paired.low < (alone.high - alone.low) / 2


def test_curves_are_straight_between_their_points() -> None:
    resampled = Resampled(PROBLEMS, draws=10)
    curve = [point("r2r", 0.9, 0.04), point("r2r", 0.5, 0.0), point("r2r", 1.0, 0.08)]
    shares = numpy.full(11, 0.01)
    assert resampled.accuracy_at(curve, shares)[0] == pytest.approx(0.6)
    assert resampled.share_for(curve, numpy.full(11, 0.7))[0] == pytest.approx(0.02)
    assert resampled.share_for(curve, numpy.full(11, 0.95))[0] == pytest.approx(0.06)
    assert resampled.share_for(curve, numpy.full(11, 0.3))[0] == 0.0
    assert resampled.share_for(curve[:2], numpy.full(11, 0.95))[0] == numpy.inf
