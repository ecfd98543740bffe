"""The search for a router threshold, against functions whose shares are known."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import pytest

from tests.calibration.fakes import FakeServer
from tokenrouter.calibration.client import Usage, connected
from tokenrouter.calibration.prompts import Prompt, question
from tokenrouter.calibration.scale import Scale
from tokenrouter.calibration.share import (
    MOST_EVALUATIONS,
    Answer,
    Point,
    answer,
    calibrate,
    next_threshold,
    point,
)
from tokenrouter.errors import ConfigError, MeasurementError

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


def run(server: FakeServer, prompts: list[Prompt], *wanted: float) -> tuple[list[Answer], int]:
    """The answers, and how many thresholds were tried for them."""
    asked = 0

    def advance() -> None:
        nonlocal asked
        asked += 1

    async def go() -> tuple[list[Answer], list[Point]]:
        async with connected(transport=server.transport) as deployment:
            return await calibrate(deployment, prompts, wanted, 64, 4, advance)

    answers, points = asyncio.run(go())
    assert asked == len(points) * len(prompts) == len(server.bodies)
    return answers, len(points)


def test_a_deployment() -> None:
    server = FakeServer(lambda threshold, prompt: round(100 * math.exp(-threshold * len(prompt))))
    prompts = [question("x" * length) for length in (5, 6, 7, 8)]
    (few, many), tried = run(server, prompts, 0.1, 0.5)
    assert few.kind == many.kind == "measured"
    assert few.share == pytest.approx(0.1, abs=0.02) and many.share == pytest.approx(0.5, abs=0.02)
    assert few.threshold > 0.3 > many.threshold > 0.05
    assert few.stderr > 0 and tried <= MOST_EVALUATIONS


def test_what_cannot_be_calibrated() -> None:
    with pytest.raises(MeasurementError, match=r"a share of 10\.0% whatever the router threshold"):
        run(FakeServer(), [question("a"), question("b")], 0.3)
    with pytest.raises(ConfigError, match="two prompts or more"):
        run(FakeServer(), [question("a")], 0.3)
    with pytest.raises(MeasurementError, match="too long"):
        run(FakeServer(), [question("a"), question("too long")], 0.3)
