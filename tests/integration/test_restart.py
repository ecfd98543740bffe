"""Killing and stopping processes of a running deployment: who fails, who goes on, who returns."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.integration.server import Server

pytestmark = pytest.mark.timeout(120)

FAIL_S = 2.0
"""From a death to the error of every request in flight."""
LONG = {"max_new_tokens": 100_000, "temperature": 0, "ignore_eos": True}


def timed(**options: Any) -> dict[str, Any]:
    """Three timed members; ``random`` between the first two would need all three."""
    models = [
        {"name": name, "engine": "timed", "step_ms": 3, "context_length": 200_000}
        for name in ("small", "large")
    ]
    return {
        "algorithm": "random", "router_threshold": 0.3, "models": models,
        "hang_timeout_s": 3, "log_level": "info", **options,
    }  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(timed(max_restarts=50)) as server:
        yield server


class InFlight:
    """Endless requests: ``streams`` of each model name, and one plain answer of each."""

    def __init__(self, server: Server, names: list[str]) -> None:
        self._pool = ThreadPoolExecutor(2 * len(names))
        self._url = server.url
        self._begun = [threading.Event() for _ in names]
        self.streams = {
            name: self._pool.submit(self._stream, name, begun)
            for name, begun in zip(names, self._begun, strict=True)
        }
        self.plain = {name: self._pool.submit(self._ask, name) for name in names}
        for begun in self._begun:
            assert begun.wait(20), "no token came"

    def _body(self, name: str) -> dict[str, Any]:
        return {"model": name, "text": "Add 1 and 2", "sampling_params": LONG}

    def _stream(self, name: str, begun: threading.Event) -> tuple[float, str]:
        """When the stream ended, and with what."""
        last = ""
        try:
            with httpx.stream(
                "POST",
                f"{self._url}/generate",
                json={**self._body(name), "stream": True},
                timeout=60,
            ) as answer:
                for line in answer.iter_lines():
                    last = line or last
                    begun.set()
        except httpx.HTTPError as error:
            last = repr(error)
        return time.monotonic(), last

    def _ask(self, name: str) -> tuple[float, int]:
        """When the answer came, and its status (0: the connection ended)."""
        try:
            answer = httpx.post(f"{self._url}/generate", json=self._body(name), timeout=60)
        except httpx.HTTPError:
            return time.monotonic(), 0
        return time.monotonic(), answer.status_code

    def close(self) -> None:
        self._pool.shutdown()


def kill(server: Server, name: str, number: int = signal.SIGKILL) -> float:
    """Send a signal to a process of the deployment; when."""
    os.kill(server.processes()[name], number)
    return time.monotonic()


def wait_healthy(server: Server, limit_s: float = 30.0) -> float:
    """When /health says 200 again."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            if server.client.get("/health").status_code == 200:
                return time.monotonic()
        except httpx.HTTPError:
            pass
        time.sleep(0.02)
    raise AssertionError(f"not healthy within {limit_s} s\n{server.log.read_text()}")


def answer(server: Server, name: str = "tokenrouter") -> list[int]:
    body = {"max_new_tokens": 20, "temperature": 0, "ignore_eos": True}
    ids: list[int] = server.generate(model=name, text="Add 3 and 4", sampling_params=body)[
        "output_ids"
    ]
    return ids


def test_a_dead_member_fails_what_may_visit_it_and_returns(server: Server) -> None:
    expected = answer(server)
    live = InFlight(server, ["tokenrouter", "tokenrouter/large", "tokenrouter/small"])
    died = kill(server, "large")
    for name in ("tokenrouter", "tokenrouter/large"):
        ended, last = live.streams[name].result(20)
        assert ended - died < FAIL_S
        assert "503" in last or "died" in last, last
        ended, status = live.plain[name].result(20)
        assert ended - died < FAIL_S
        assert status == 503
    refused = server.client.get("/health")
    if refused.status_code != 200:
        assert refused.status_code == 503
        assert "large" in refused.json()["error"]["message"]
        assert int(refused.headers["retry-after"]) > 0
    wait_healthy(server)
    assert answer(server) == expected
    assert not live.streams["tokenrouter/small"].done(), "it had nothing to do with the death"
    info = server.client.get("/get_server_info").json()["processes"]
    assert info["large"]["restarts"] == 1
    assert info["small"]["restarts"] == 0
    died = kill(server, "small")
    assert live.streams["tokenrouter/small"].result(20)[0] - died < FAIL_S
    assert live.plain["tokenrouter/small"].result(20)[1] == 503
    wait_healthy(server)
    live.close()
    assert answer(server) == expected
    server.assert_clean()
