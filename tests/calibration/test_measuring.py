"""What is read before and after, from a server whose members measured known things."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.calibration.fakes import FakeServer, pair
from tokenrouter.calibration import measuring
from tokenrouter.calibration.client import connected
from tokenrouter.calibration.measuring import measure
from tokenrouter.calibration.prompts import question
from tokenrouter.calibration.windows import Window
from tokenrouter.errors import MeasurementError

pytestmark = pytest.mark.timeout(20)

PROMPTS = [question(text) for text in ("a", "b", "c")]


def run(server: FakeServer, *concurrency: int, threshold: float | None = None) -> list[Window]:
    async def go() -> list[Window]:
        async with connected(transport=server.transport) as deployment:
            return await measure(
                deployment, PROMPTS, concurrency, 0.05, 64, threshold, seconds.append
            )

    seconds: list[float] = []
    measured = asyncio.run(go())
    assert sum(seconds) == pytest.approx(0.05 * len(concurrency))
    return measured


def test_windows_lie_between_two_readings_each() -> None:
    readings = [pair(0.0, 0, 0), pair(1.0, 200, 40), pair(4.0, 900, 70), pair(5.0, 1000, 90)]
    server = FakeServer(readings=[pair(0.0, 0, 0), *readings])
    two, four = run(server, 2, 4, threshold=0.3)
    assert (two.concurrency, four.concurrency) == (2, 4)
    assert two.members[0].hops == {0: (200, 200), 1: (40, 0)}
    assert four.members[1].hops == {0: (20, 20)} and four.members[1].at == 1.0
    assert two.thresholds == (1, 1)
    assert {body["model"] for body in server.bodies} == {"demo@0.3"}
    seeds = [body["routing"]["seed"] for body in server.bodies]
    assert len(set(seeds)) == len(seeds), "the same prompt again is another draw"


def test_a_long_window_has_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "PART_S", 0.02)
    counts = [pair(0.0, 0, 0), pair(1.0, 60, 40), pair(2.0, 140, 80)]
    [found] = run(FakeServer(readings=[pair(0.0, 0, 0), *counts]), 2)
    assert found.parts == (100.0, 120.0) and found.tokens_per_s == 110.0


def test_requests_are_kept_at_the_concurrency() -> None:
    server = FakeServer(readings=[pair(0.0, 0, 0), pair(0.0, 0, 0), pair(1.0, 100, 99)])
    server.delay_s = 0.01
    run(server, 3)
    assert server.most_at_once == 3


def test_too_little_is_told() -> None:
    server = FakeServer(readings=[pair(0.0, 0, 0), pair(0.0, 0, 0), pair(1.0, 100, 9)])
    with pytest.raises(MeasurementError, match="only 9 hand-overs happened"):
        run(server, 1)


def test_members_that_tell_nothing() -> None:
    with pytest.raises(MeasurementError, match="measure nothing"):
        run(FakeServer(), 1)
    silent = FakeServer()
    silent.info["models"][1]["state"] = None
    with pytest.raises(MeasurementError, match="large: does not answer"):
        run(silent, 1)


def test_a_request_that_fails_ends_it_at_once() -> None:
    server = FakeServer(readings=[pair(0.0, 0, 0)])
    began = time.monotonic()

    async def go() -> None:
        async with connected(transport=server.transport) as deployment:
            await measure(
                deployment, [question("too long")], [2], 30.0, 64, None, lambda seconds: None
            )

    with pytest.raises(MeasurementError, match="too long"):
        asyncio.run(go())
    assert time.monotonic() - began < 5
