"""Thresholds that set themselves, on the real stack with timed members."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.integration.server import Server
from tests.integration.test_restart import InFlight, kill, timed, wait_healthy, wait_until

pytestmark = pytest.mark.timeout(120)

SETTLED_S = 10.0
"""From the first request to the thresholds; more on a machine that does other things."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    config = timed(max_restarts=50)
    config["router_threshold"] = 0.35
    for model, step_ms in zip(config["models"], (6.0, 27.9), strict=True):
        model["step_ms"] = step_ms
    with Server(config) as server:
        yield server


def in_force(server: Server) -> list[tuple[int, int]]:
    return [(state["threshold"], state["plan"]) for state in server.states()]


def waits(server: Server) -> bool:
    """Whether the large model waits for company, and everybody has the same plan."""
    (small, version), (large, other) = in_force(server)
    return small == 1 and large in (2, 3) and version == other > 0


def test_they_are_there_in_seconds_and_survive_deaths(server: Server) -> None:
    begun = time.monotonic()
    live = [InFlight(server, ["tokenrouter"]) for _ in range(2)]  # of two requests each
    wait_until(lambda: waits(server), 3 * SETTLED_S)
    print(f"settled after {time.monotonic() - begun:.1f} s")
    info = server.client.get("/get_server_info").json()
    assert info["plan"]["concurrency"] in (3, 4)
    assert 1.02 < info["plan"]["gain"] < 1.3, "1.11, as far as two seconds can tell"
    assert info["plan"]["table"][0] == [1, 1]
    metrics = server.client.get("/metrics").text
    for name, value in {"changes_total": 1, "version": 1}.items():
        assert re.search(rf"^tokenrouter_plan_{name}{{.*}} {value}\.0$", metrics, re.MULTILINE)
    assert re.search(
        r"planner INFO thresholds for 4 live .* small 1, large", server.log.read_text()
    )
    before = in_force(server)
    old = server.processes()["planner"]
    kill(server, "planner")
    wait_until(lambda: server.processes().get("planner", old) != old)
    assert in_force(server) == before, "what they were told holds"
    wait_until(lambda: in_force(server)[1][1] > before[1][1] and waits(server), 3 * SETTLED_S)
    kill(server, "large")
    wait_healthy(server)
    for each in live:
        each.close()
    again = InFlight(server, ["tokenrouter"])
    wait_until(lambda: waits(server), 3 * SETTLED_S)
    kill(server, "small")
    wait_healthy(server)
    again.close()
    server.assert_clean(after_deaths=True)
