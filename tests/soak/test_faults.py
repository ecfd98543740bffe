"""Processes are killed and stopped under load: every promise holds, each time.

A request that a fault hits ends within two seconds, `/health` says 503 and then 200, what
is asked again is exact, and afterwards the deployment is as it was. Or, where nothing can
go on, the server ends with status 1 and leaves nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.soak.deployment import Deployment, timed
from tests.soak.oracle import Oracle
from tests.soak.traffic import Load
from tokenrouter.config import Config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HANG_S = 3.0
FAIL_S = 2.0
"""From a death to the error of every request it hits."""
SLACK_S = 1.0
"""For the clients of a busy machine to notice."""
BACK_S = 40.0
MEMBERS = ("a", "b")
CHILDREN = (*MEMBERS, "detokenizer", "front-end", "planner")
LONGEST_S = 40.0
"""An answer of 400 tokens, whoever writes them, takes a quarter; a stalled wait takes longer."""
CONTEXT = 2048
CLIENTS = 24


def config(**options: Any) -> dict[str, Any]:
    settings = timed(
        15, 25, algorithm="entropy", router_threshold=0.6, max_restarts=100,
        hang_timeout_s=HANG_S, drain_timeout_s=3, **options,
    )  # fmt: skip
    for model in settings["models"]:
        model["context_length"] = CONTEXT
    return settings


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the processes of the test put temporary files: it must be empty in the end."""
    with tempfile.TemporaryDirectory() as name:  # sockets need a short path
        monkeypatch.setenv("TMPDIR", name)
        yield Path(name)
        assert list(Path(name).iterdir()) == []


def load_of(server: Deployment, settings: dict[str, Any]) -> Load:
    oracle = Oracle(Config.model_validate(settings))
    models = ("soak", "soak@0.3", "soak/a", "soak/b")
    return Load(server.url, oracle, models, CONTEXT, faults=True)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_dies_or_hangs_comes_back(temporary: Path, seed: int) -> None:
    rng = random.Random(seed)
    faults = [(name, number) for name in CHILDREN for number in (signal.SIGKILL, signal.SIGSTOP)]
    rng.shuffle(faults)
    print(f"seed {seed}: {[(name, number.name) for name, number in faults]}")

    async def hurt(server: Deployment, load: Load) -> None:
        for name, number in faults[: len(faults) // 2 + 1]:
            await asyncio.sleep(rng.random() * 2)
            await one_fault(server, load, name, number)

    under_load(seed, hurt)


@pytest.mark.parametrize("seed", [4, 5])
def test_several_die_while_others_return(temporary: Path, seed: int) -> None:
    """At any moment, newcomers too: in the end all are there, and nothing has stuck."""
    rng = random.Random(seed)

    async def hurt(server: Deployment, load: Load) -> None:
        for _ in range(12):
            await asyncio.sleep(rng.random() * 1.5)
            name = rng.choice(CHILDREN)
            print(f"SIGKILL of {name}")
            with contextlib.suppress(KeyError, ProcessLookupError):  # it is gone already
                server.hurt(name, signal.SIGKILL)
        hit = set(load.flying)
        await asyncio.sleep(FAIL_S + SLACK_S)
        await healthy(server, BACK_S)
        # Those of others' models may go on, but not for long.
        deadline = time.monotonic() + LONGEST_S
        while hit & set(load.flying):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)

    under_load(seed, hurt)


def under_load(seed: int, hurt: Callable[[Deployment, Load], Coroutine[Any, Any, None]]) -> None:
    """Clients ask and ask while ``hurt`` runs; afterwards all is as it was, and exact."""
    settings = config()
    with Deployment(settings) as server:
        load = load_of(server, settings)
        before = set(server.processes())

        async def play() -> None:
            clients = asyncio.create_task(load.run(CLIENTS, 1000, seed))
            scenario = asyncio.create_task(hurt(server, load))
            await asyncio.wait((clients, scenario), return_when=asyncio.FIRST_COMPLETED)
            if clients.done():
                scenario.cancel()
            load.stop()
            await clients
            await scenario

        asyncio.run(play())
        assert load.counts["exact"] > 20, load.counts
        load.faults = False
        asyncio.run(load.run(CLIENTS, 2, seed + 1000))
        server.assert_settled()
        assert set(server.processes()) == before


async def one_fault(server: Deployment, load: Load, name: str, number: signal.Signals) -> None:
    """Do it, and see what was promised."""
    dies = time.monotonic()
    hit = {
        request
        for request, model in load.flying.items()
        if name != "planner"  # which no request needs
        and (name not in MEMBERS or model in ("soak", "soak@0.3", f"soak/{name}"))
    }
    server.hurt(name, number)
    noticed = HANG_S if number == signal.SIGSTOP else 0.0
    await asyncio.sleep(FAIL_S + SLACK_S + noticed)
    left = {load.flying[request] for request in hit & set(load.flying)}
    assert not left, f"{number.name} of {name}: no error for requests of {left}"
    back = await healthy(server, BACK_S)
    print(f"{number.name} of {name}: healthy {back - dies:.1f} s after it")


async def healthy(server: Deployment, limit_s: float) -> float:
    """When /health says 200; before, it may say 503, or the front end may be away."""
    async with aiohttp.ClientSession(server.url) as session:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                async with session.get("/health") as answer:
                    if answer.status == 200:
                        return time.monotonic()
                    assert answer.status == 503, answer.status
            await asyncio.sleep(0.1)
    raise AssertionError(f"not healthy within {limit_s} s:\n{server.log.read_text()}")


@pytest.mark.parametrize(
    ("name", "number", "on_failure"),
    [
        ("zygote", signal.SIGKILL, "restart"),
        ("zygote", signal.SIGSTOP, "restart"),
        ("supervisor", signal.SIGKILL, "restart"),
        ("a", signal.SIGKILL, "stop"),
        ("a", signal.SIGSTOP, "stop"),
    ],
)
def test_what_cannot_go_on_leaves_nothing(
    temporary: Path, name: str, number: signal.Signals, on_failure: str
) -> None:
    settings = config(on_failure=on_failure)
    with Deployment(settings) as server:
        load = load_of(server, settings)
        pids = server.processes()

        async def play() -> None:
            clients = asyncio.create_task(load.run(CLIENTS, 1000, seed=5))
            await asyncio.sleep(1.5)
            begun = time.monotonic()
            server.hurt(name, number)
            limit_s = 15.0 + HANG_S * 2
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await asyncio.gather(*map(_ended, pids.values()))
            print(f"{number.name} of {name}: all ended after {time.monotonic() - begun:.1f} s")
            load.stop()
            await clients

        asyncio.run(play())
        left = {each: pid for each, pid in pids.items() if _runs(pid)}
        assert not left, server.log.read_text()
        status = server.exit_status(5)
        assert status == (-signal.SIGKILL if name == "supervisor" else 1)
        assert sum(load.counts[kind] for kind in load.counts if kind != "exact") > 0


def test_a_supervisor_that_was_stopped_for_a_while_goes_on(temporary: Path) -> None:
    settings = config()
    with Deployment(settings) as server:
        load = load_of(server, settings)
        load.faults = False
        pids = server.processes()

        async def play() -> None:
            clients = asyncio.create_task(load.run(CLIENTS, HANG_S * 2 + 4, seed=6))
            await asyncio.sleep(1)
            server.hurt("supervisor", signal.SIGSTOP)
            await asyncio.sleep(HANG_S * 2)
            os.kill(pids["supervisor"], signal.SIGCONT)
            await clients

        asyncio.run(play())
        assert server.processes() == pids
        server.assert_settled()


FULL = """
mount -t tmpfs -o size=256k tokenrouter-test /dev/shm &&
mount -t tmpfs -o size=256k tokenrouter-test "$TMPDIR" &&
exec "$@"
"""
"""Runs a command whose shared memory and temporary files are small, and nobody else's."""


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert os.statvfs(path).f_bavail == 0


@pytest.mark.parametrize("on_failure", ["restart", "stop"])
def test_full_shared_memory_and_disk(temporary: Path, on_failure: str) -> None:
    wrapper = ["unshare", "--mount", "sh", "-ec", FULL, "sh"]
    if subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    settings = config(on_failure=on_failure)
    with Deployment(settings, wrapper) as server:
        load = load_of(server, settings)
        pids = server.processes()
        root = Path(f"/proc/{pids['supervisor']}/root")
        for folder in (root / "dev/shm", root / temporary.relative_to("/")):
            fill(folder / "fill")

        async def play() -> None:
            load.faults = False
            await load.run(8, 3, seed=7)
            load.faults = True
            clients = asyncio.create_task(load.run(8, 1000, seed=8))
            await asyncio.sleep(1)
            if on_failure == "restart":
                await one_fault(server, load, "a", signal.SIGKILL)
            else:
                server.hurt("a", signal.SIGKILL)
                async with asyncio.timeout(15):
                    await asyncio.gather(*map(_ended, pids.values()))
            load.stop()
            await clients

        asyncio.run(play())
        if on_failure == "restart":
            server.assert_settled()
        else:
            assert server.exit_status(5) == 1


async def _ended(pid: int) -> None:
    while _runs(pid):  # noqa: ASYNC110 - no event tells of the end of another's child
        await asyncio.sleep(0.1)


def _runs(pid: int) -> bool:
    """Whether a process is there, and not only its exit status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
