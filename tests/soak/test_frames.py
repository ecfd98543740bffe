"""Bad frames to every socket of a running server, while its clients get exact answers."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.soak.deployment import Deployment, timed
from tests.soak.frames import bad_frames, lie_to_supervisor, send_all, send_raw
from tests.soak.oracle import Oracle
from tests.soak.traffic import Load
from tokenrouter.config import Config

FRAMES = 1500
"""To each socket."""
SECONDS = 4.0


def config(sockets: Path) -> dict[str, Any]:
    models = timed(2, 5, algorithm="entropy", router_threshold=0.6)
    for model in models["models"]:
        model["context_length"] = 2048
    return {**models, "socket_dir": str(sockets)}


@pytest.mark.timeout(120)
def test_bad_frames_harm_nobody(tmp_path: Path) -> None:
    settings = config(tmp_path / "s")
    oracle = Oracle(Config.model_validate(settings))
    with Deployment(settings) as server:
        sockets = {path.stem: path for path in (tmp_path / "s").glob("*.sock")}
        assert set(sockets) == {
            "supervisor", "tokenizer", "detokenizer", "planner",
            "a.input", "a.peer", "b.input", "b.peer",
        }  # fmt: skip
        pids = server.processes()
        for name, path in sockets.items():  # the first has each log writer start its thread
            _attack(name, path, 1)
        before = server.resources()
        load = Load(server.url, oracle, ("soak", "soak/b"), 2048)
        errors: list[BaseException] = []

        def attack(name: str, path: Path) -> None:
            try:
                _attack(name, path, FRAMES)
            except BaseException as error:
                errors.append(error)
                raise

        attackers = [threading.Thread(target=attack, args=pair) for pair in sockets.items()]
        for thread in attackers:
            thread.start()
        asyncio.run(load.run(20, SECONDS, seed=2))
        for thread in attackers:
            thread.join()
        assert not errors
        assert load.counts["exact"] > 20, load.counts
        assert server.processes() == pids
        server.assert_resources(before)
        # All were counted (raw bytes may make frames, too), and the log tells of them in few lines.
        for state in server.states():
            assert sum(state["dropped"].values()) >= 2 * FRAMES, state["dropped"]
            assert set(state["dropped"]) >= {"malformed", "version", "foreign", "stale"}
            assert state["visits"] == state["requests"] == 0
        assert _dropped_text_frames(server) >= FRAMES
        log = server.log.read_text()
        for name in ("supervisor", "tokenizer", "detokenizer", "planner", "a.peer", "b.input"):
            assert f"{name}.sock: dropped a " in log, log
        assert len(log) < 40_000
        assert server.errors() == []


def _attack(name: str, path: Path, count: int) -> None:
    rng = random.Random(f"{name} {count}")
    send_raw(path, rng)
    if name == "supervisor":
        lie_to_supervisor(path, "a", rng)
    else:
        send_all(path, bad_frames(rng, count))


def _dropped_text_frames(server: Deployment) -> int:
    lines = server.client.get("/metrics").text.splitlines()
    found = [line for line in lines if "_dropped_frames_total" in line and '"front-end"' in line]
    return sum(int(float(line.split()[-1])) for line in found)
