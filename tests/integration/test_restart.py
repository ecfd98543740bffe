"""Killing and stopping processes of a running deployment: who fails, who goes on, who returns."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.deployments import TAU, demo
from tests.integration.server import Server
from tokenrouter.throughput_model.event_simulation.decisions import load

pytestmark = pytest.mark.timeout(120)

FAIL_S = 2.0
"""From a death to the error of every request in flight."""
HANG_S = 3.0
LONG = {"max_new_tokens": 100_000, "temperature": 0, "ignore_eos": True}


def timed(**options: Any) -> dict[str, Any]:
    """Two timed members, whose waits for a threshold never end by themselves: a stall shows."""
    models = [
        {"name": name, "engine": "timed", "step_ms": 3, "context_length": 200_000}
        for name in ("small", "large")
    ]
    return {
        "algorithm": "random", "router_threshold": 0.3, "models": models,
        "hang_timeout_s": HANG_S, "log_level": "info", "max_wait_ms": 60_000, **options,
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


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], bool], limit_s: float = 30.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def kill(server: Server, name: str, number: int = signal.SIGKILL) -> float:
    """Send a signal to a process of the deployment; when."""
    os.kill(server.processes()[name], number)
    return time.monotonic()


def wait_healthy(server: Server, limit_s: float = 60.0) -> float:
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
    running = server.processes()
    assert {name: each["pids"] for name, each in info.items()} == {
        name: [running[name]] for name in info
    }
    died = kill(server, "small")
    assert live.streams["tokenrouter/small"].result(20)[0] - died < FAIL_S
    assert live.plain["tokenrouter/small"].result(20)[1] == 503
    wait_healthy(server)
    live.close()
    assert answer(server) == expected
    server.assert_clean(after_deaths=True)


@pytest.mark.parametrize(
    ("victim", "number"),
    [
        ("small", signal.SIGKILL),
        ("large", signal.SIGKILL),
        ("detokenizer", signal.SIGKILL),
        ("front-end", signal.SIGKILL),
        ("large", signal.SIGSTOP),
        pytest.param("small", signal.SIGSTOP, marks=pytest.mark.slow),
        pytest.param("detokenizer", signal.SIGSTOP, marks=pytest.mark.slow),
        pytest.param("front-end", signal.SIGSTOP, marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_process_returns(server: Server, victim: str, number: signal.Signals) -> None:
    """Under load: requests end in time, and the same requests are answered afterwards."""
    expected = answer(server)
    live = InFlight(server, ["tokenrouter", "tokenrouter/small"])
    concerned = [name for name in live.streams if victim != "large" or name == "tokenrouter"]
    old = server.processes()[victim]
    died = kill(server, victim, number)
    limit_s = FAIL_S if number == signal.SIGKILL else FAIL_S + HANG_S + 1.0  # one beat
    for name in concerned:
        ended, last = live.streams[name].result(20)
        assert ended - died < limit_s
        ended, status = live.plain[name].result(20)
        assert ended - died < limit_s
        if victim != "front-end":
            assert "503" in last or "died" in last, last
            assert status == 503
    wait_healthy(server)
    assert server.processes()[victim] != old
    assert answer(server) == expected
    if victim == "large":
        # Its own request had nothing to do with it, and goes on until its home dies.
        assert not live.streams["tokenrouter/small"].done()
        kill(server, "small")
        assert live.plain["tokenrouter/small"].result(20)[1] == 503
        wait_healthy(server)
    live.close()
    server.assert_clean(after_deaths=True)


def test_a_death_with_nothing_in_flight_goes_unnoticed(server: Server) -> None:
    for victim in ("large", "detokenizer", "planner"):
        kill(server, victim)
        wait_healthy(server)
        answer(server)
    server.assert_clean(after_deaths=True)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)]
)
def test_no_request_notices_the_death_of_the_planner(
    server: Server, number: signal.Signals
) -> None:
    live = InFlight(server, ["tokenrouter"])
    old = server.processes()["planner"]
    kill(server, "planner", number)
    wait_until(lambda: server.processes().get("planner", old) != old)
    assert server.client.get("/health").status_code == 200
    wait_until(lambda: server.client.get("/get_server_info").json()["processes"]["planner"]["up"])
    assert not live.streams["tokenrouter"].done()
    kill(server, "small")
    wait_healthy(server)
    live.close()
    server.assert_clean(after_deaths=True)


def test_sigterm_finishes_what_is_there(tmp_path: Path) -> None:
    """And the last decisions are in the log of decisions."""
    with Server(timed(drain_timeout_s=20, record_decisions=str(tmp_path))) as server:
        body = {"text": "Add 1", "sampling_params": {**LONG, "max_new_tokens": 600}}
        with ThreadPoolExecutor(2) as pool:
            begun = pool.submit(server.generate, **body)
            stream = pool.submit(
                httpx.post, f"{server.url}/generate", json={**body, "stream": True}, timeout=60
            )
            wait_until(lambda: any(state["requests"] == 2 for state in server.states()))
            os.kill(server.processes()["supervisor"], signal.SIGTERM)
            wait_until(lambda: server.client.get("/health").status_code == 503)
            refused = server.client.post("/generate", json=body)
            assert refused.status_code == 503
            assert "stopping" in refused.json()["error"]["message"]
            assert int(refused.headers["retry-after"]) > 0
            assert len(begun.result(20)["output_ids"]) == 600
            assert stream.result(20).text.endswith("data: [DONE]\n\n")
        assert server.exit_status(10) == 0
    tapes = load(tmp_path)
    assert sorted(tapes.committed.sum(axis=1)) == [600, 600]


@pytest.mark.parametrize("victim", ["supervisor", "zygote"])
def test_nothing_is_left_of_a_killed_deployment(victim: str) -> None:
    shared = set(Path("/dev/shm").iterdir())
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        with Server(timed()) as server:
            assert list(Path(folder).glob("tokenrouter-run-*/*.sock"))
            processes = server.processes()
            live = InFlight(server, ["tokenrouter"])
            died = kill(server, victim)
            assert live.streams["tokenrouter"].result(20)[0] - died < FAIL_S
            assert server.exit_status(10) == (-signal.SIGKILL if victim == "supervisor" else 1)
            wait_until(lambda: not any(map(alive, processes.values())))
            wait_until(lambda: not list(Path(folder).glob("tokenrouter-run-*")))
            live.close()
    # Others on this machine may use it, too, for a moment.
    wait_until(lambda: set(Path("/dev/shm").iterdir()) <= shared)


def test_the_demo_pair_is_back_in_five_seconds() -> None:
    """Models with weights: forked from what is imported already."""
    with Server(demo("entropy", TAU, (1, 1), log_level="info")) as server:
        expected = answer(server)
        for victim in ("large", "small"):
            died = kill(server, victim)
            assert wait_healthy(server) - died < 5.0
            assert answer(server) == expected
        server.assert_clean(after_deaths=True)
