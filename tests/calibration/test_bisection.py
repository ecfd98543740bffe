"""The search for a router threshold, against functions whose shares are known."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tokenrouter.calibration.bisection import Answer, Point, answer, next_threshold, point
from tokenrouter.calibration.client import Usage
from tokenrouter.calibration.scale import Scale
from tokenrouter.calibration.share import MOST_EVALUATIONS
from tokenrouter.errors import MeasurementError

pytestmark = pytest.mark.timeout(20)

INFINITE = float("inf")
EXACT = 1e-9
"""A standard error that makes nothing near by itself."""


def searched(
    share: Callable[[float], float], wanted: float, scale: Scale
) -> tuple[Answer, list[Point]]:
    """What the search finds where thresholds give exactly these shares."""
    points: list[Point] = []
    while len(points) < MOST_EVALUATIONS:
        threshold = next_threshold(points, wanted, scale)
        if threshold is None:
            break
        points.append(Point(threshold, share(threshold), EXACT, 1000))
        points.sort(key=lambda each: each.threshold)
    return answer(points, wanted, scale), points


@pytest.mark.parametrize("wanted", [0.01, 0.05, 0.3, 0.9])
@pytest.mark.parametrize(
    ("share", "scale"),
    [
        (lambda t: math.exp(-t / 0.05), Scale(0.0, INFINITE, 0.1)),
        (lambda t: math.exp(-t / 0.05), Scale(0.0, INFINITE, None)),
        (lambda t: t, Scale(0.0, 1.0, 0.5)),
        (lambda t: t**8, Scale(0.0, 1.0, 0.9)),
        (lambda t: 1 / (1 + math.exp(t / 3)), Scale(-INFINITE, INFINITE, None)),
    ],
)
def test_a_smooth_share_is_met(
    share: Callable[[float], float], scale: Scale, wanted: float
) -> None:
    found, points = searched(share, wanted, scale)
    assert found.kind == "measured"
    assert found.share == share(found.threshold) == pytest.approx(wanted, rel=0.021)
    assert len(points) < MOST_EVALUATIONS


def test_a_share_that_jumps() -> None:
    scale = Scale(0.0, 1.0, 0.5)
    found, _ = searched(lambda t: 0.6 if t >= 0.3 else 0.02, 0.1, scale)
    assert (found.kind, found.share) == ("jump", 0.02)
    assert found.threshold == pytest.approx(0.3, abs=0.002)


def test_a_share_out_of_reach() -> None:
    scale = Scale(0.0, 1.0, 0.5)
    found, points = searched(lambda t: 0.2 * t, 0.4, scale)
    assert (found.kind, found.threshold, found.share) == ("beyond", 1.0, 0.2)
    assert len(points) == 3, "the start and both ends tell it"


def test_too_few_evaluations_interpolate() -> None:
    scale = Scale(0.0, 1.0, 0.5)
    points = [Point(0.2, 0.1, 0.01, 100), Point(0.4, 0.4, 0.02, 100)]
    found = answer(points, 0.2, scale)
    assert (found.kind, found.share, found.stderr) == ("interpolated", 0.2, 0.02)
    assert found.threshold == pytest.approx(0.3, abs=0.01), "0.2 is twice 0.1 and half 0.4"


def test_near_enough_is_a_matter_of_the_uncertainty() -> None:
    scale = Scale(0.0, 1.0, 0.5)
    assert next_threshold([Point(0.5, 0.11, 0.05, 100)], 0.1, scale) is None
    assert next_threshold([Point(0.5, 0.11, 0.01, 100)], 0.1, scale) == 1.0


def test_the_standard_error_of_a_share() -> None:
    alike = point(0.1, [Usage(100, 10), Usage(50, 5)])
    assert (alike.share, alike.stderr, alike.tokens) == (0.1, 0.0, 150)
    usages = [Usage(10, each) for each in (0, 1, 2, 3)]
    mean, variance = 1.5, 5 / 3
    assert point(0.1, usages).share == pytest.approx(mean / 10)
    assert point(0.1, usages).stderr == pytest.approx(math.sqrt(variance / 4) / 10)
    with pytest.raises(MeasurementError, match="answers are empty"):
        point(0.1, [Usage(0, 0), Usage(0, 0)])


@pytest.mark.parametrize(
    "scale", [Scale(0.0, 1.0, 0.2), Scale(0.0, INFINITE, 0.1), Scale(-INFINITE, INFINITE, -2.0),
              Scale(-INFINITE, -1.0, None), Scale(5.0, INFINITE, None)]
)  # fmt: skip
def test_scales_rise_and_turn_back(scale: Scale) -> None:
    units = [0.3, 0.4, 0.5, 0.6, 0.7]
    thresholds = [scale.threshold(unit) for unit in units]
    assert thresholds == sorted(set(thresholds))
    assert [scale.unit(each) for each in thresholds] == pytest.approx(units, abs=1e-3)
    assert scale.low <= thresholds[0] < thresholds[-1] <= scale.high
