"""The share of real answers, from a server whose shares are known."""

from __future__ import annotations

import asyncio
import math

import pytest

from tests.calibration.fakes import FakeServer
from tokenrouter.calibration.bisection import Answer, Point
from tokenrouter.calibration.client import connected
from tokenrouter.calibration.prompts import Prompt, question
from tokenrouter.calibration.share import MOST_EVALUATIONS, calibrate
from tokenrouter.errors import ConfigError, MeasurementError

pytestmark = pytest.mark.timeout(20)


def run(server: FakeServer, prompts: list[Prompt], *wanted: float) -> tuple[list[Answer], int]:
    """The answers, and how many thresholds were tried for them."""
    asked = 0
    told: list[Point] = []

    def advance() -> None:
        nonlocal asked
        asked += 1

    async def go() -> tuple[list[Answer], list[Point]]:
        async with connected(transport=server.transport) as deployment:
            return await calibrate(deployment, prompts, wanted, 64, 4, advance, told.append)

    answers, points = asyncio.run(go())
    assert sorted(told, key=lambda each: each.threshold) == points
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
