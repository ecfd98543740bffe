"""The offline engine as programs use it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

import tokenrouter
from tokenrouter.config import UNIX_HOST, Config
from tokenrouter.errors import (
    ConfigError,
    EngineClosedError,
    MemberDeadError,
    RequestError,
    UnknownModelError,
)
from tokenrouter.offline.engine import _configuration

pytestmark = pytest.mark.timeout(150)

PROMPT = "Dan has 4 boxes of 3740 pens and finds 7539 more. How many pens?"
GREEDY: dict[str, Any] = {"temperature": 0, "max_new_tokens": 24}
TIMED = [{"name": "fast", "engine": "timed", "step_ms": 1}]


@pytest.fixture(scope="module")
def engine() -> Iterator[tokenrouter.Engine]:
    with tokenrouter.Engine(demo=True, router_threshold=0.05) as engine:
        yield engine


@pytest.fixture(scope="module")
def expected(engine: tokenrouter.Engine) -> dict[str, Any]:
    answer: dict[str, Any] = engine.generate(PROMPT, GREEDY)
    return answer


def settled(engine: tokenrouter.Engine) -> None:
    """Wait until no member holds anything."""
    deadline = time.monotonic() + 30
    while any(model["state"]["visits"] for model in engine.server_info()["models"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_answer_as_sglang_gives_it(engine: tokenrouter.Engine, expected: dict[str, Any]) -> None:
    assert expected["text"].startswith("Sultract 6 from 474")
    meta = expected["meta_info"]
    assert meta["completion_tokens"] == len(expected["output_ids"]) == 24
    assert meta["finish_reason"] == {"type": "length", "length": 24}
    assert set(meta["routing"]["tokens"]) == {"small", "large"}
    by_ids = engine.generate(input_ids=[68, 97, 110], sampling_params=GREEDY)
    assert by_ids["text"] == engine.generate("Dan", GREEDY)["text"]


def test_options_reach_the_request(engine: tokenrouter.Engine, expected: dict[str, Any]) -> None:
    options: dict[str, Any] = {"model": "demo/large", "routing": {"token_models": True}}
    meta = engine.generate(PROMPT, GREEDY, **options, rid="mine")["meta_info"]
    assert meta["id"] == "mine"
    assert meta["routing"]["tokens"] == {"large": 24}
    assert engine.server_info()["router_threshold"] == 0.05


def test_a_batch_and_threads(engine: tokenrouter.Engine, expected: dict[str, Any]) -> None:
    batch = engine.generate([PROMPT, "Dan"], [GREEDY, {**GREEDY, "max_new_tokens": 3}])
    assert [len(each["output_ids"]) for each in batch] == [24, 3]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: engine.generate(PROMPT, GREEDY), range(16)))
    assert {each["text"] for each in [batch[0], *answers]} == {expected["text"]}


def test_a_stream(engine: tokenrouter.Engine, expected: dict[str, Any]) -> None:
    texts = [answer["text"] for answer in engine.generate(PROMPT, GREEDY, stream=True)]
    assert texts[-1] == expected["text"]
    assert len(texts) > 3
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))


def test_event_loops(engine: tokenrouter.Engine, expected: dict[str, Any]) -> None:
    async def ask_all() -> set[str]:
        many = await asyncio.gather(*(engine.async_generate(PROMPT, GREEDY) for _ in range(16)))
        stream = await engine.async_generate(PROMPT, GREEDY, stream=True)
        texts = [answer["text"] async for answer in stream]
        # As a notebook does, whose loop is running: it waits, and nothing breaks.
        return {texts[-1], engine.generate(PROMPT, GREEDY)["text"], *(m["text"] for m in many)}

    for _ in range(2):  # each with a loop of its own
        assert asyncio.run(ask_all()) == {expected["text"]}


def test_a_stream_that_is_left_ends_its_request(engine: tokenrouter.Engine) -> None:
    endless = {"max_new_tokens": 2000, "ignore_eos": True, "temperature": 0}
    stream = engine.generate("Dan", endless, model="demo/small", stream=True)
    next(stream)
    stream.close()
    settled(engine)

    async def leave() -> None:
        answers = await engine.async_generate("Dan", endless, model="demo/small", stream=True)
        async with contextlib.aclosing(answers):
            await anext(answers)

    asyncio.run(leave())
    settled(engine)


def test_errors_are_ours(engine: tokenrouter.Engine) -> None:
    with pytest.raises(RequestError) as error:
        engine.generate("Dan", {"temperature": -1})
    assert error.value.field == "sampling_params.temperature"
    with pytest.raises(RequestError):
        next(engine.generate("Dan", {"temperature": -1}, stream=True))
    with pytest.raises(UnknownModelError, match="unknown model 'demo/huge'"):
        asyncio.run(engine.async_generate("Dan", model="demo/huge"))
    with pytest.raises(RequestError, match="wrong_field"):
        engine.generate("Dan", wrong_field=1)


def test_a_server_s_port_is_free_for_others() -> None:
    fields = {"models": TIMED, "ports": {"fast": {"nccl": Config.model_fields["port"].default}}}
    assert _configuration(None, fields).host == UNIX_HOST


def test_it_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"prefill: .* got 'x' \(from Engine\(prefill=...\)\)"):
        tokenrouter.Engine(models=TIMED, prefill="x")
    with pytest.raises(ConfigError, match="port: nobody else reaches an Engine; remove it"):
        tokenrouter.Engine(models=TIMED, port=1)
    with pytest.raises(ConfigError, match="demo: brings its own"):
        tokenrouter.Engine("x.yaml", demo=True)
    with pytest.raises(ConfigError, match=r"^x.yaml: cannot be read: No such file"):
        tokenrouter.Engine("x.yaml")


SCRIPT = """
import os, signal, sys, threading, tokenrouter
TIMED = [{"name": "fast", "engine": "timed", "step_ms": 1}]

def work():
    engine = tokenrouter.Engine(models=TIMED)
    print(engine.pid, engine.generate("a", {"max_new_tokens": 3})["meta_info"]["completion_tokens"])
    sys.stdout.flush()
    return engine

if sys.argv[1] == "raise":
    with tokenrouter.Engine(models=TIMED) as engine:
        print(engine.pid, flush=True)
        raise KeyError("of the program")
elif sys.argv[1] == "exit":
    engine = work()
elif sys.argv[1] == "fork":
    engine = work()
    if os.fork() == 0:
        sys.exit()  # must not end what belongs to its parent
    os.wait()
    assert len(engine.generate("a", {"max_new_tokens": 3})["output_ids"]) == 3
elif sys.argv[1] == "kill":
    engines = []
    thread = threading.Thread(target=lambda: engines.append(work()))
    thread.start()
    thread.join()  # the engine outlives the thread that made it
    work_done = engines[0].generate("a", {"max_new_tokens": 3})
    stream = engines[0].generate("a", {"max_new_tokens": 30000}, stream=True)
    next(stream)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def run_script(way: str, folder: Path) -> tuple[int, list[psutil.Process], str]:
    """Exit status of a program, the processes that its engine had, and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error::ResourceWarning", "-c", SCRIPT, way],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    family = []
    if first:
        with contextlib.suppress(psutil.NoSuchProcess):
            supervisor = psutil.Process(int(first.split()[0]))
            family = [supervisor, *supervisor.children(recursive=True)]
    _, errors = process.communicate(timeout=100)
    return process.returncode, family, errors


@pytest.mark.parametrize(
    ("way", "status"),
    [
        ("kill", -signal.SIGKILL),
        pytest.param("raise", 1, marks=pytest.mark.slow),
        pytest.param("exit", 0, marks=pytest.mark.slow),
        pytest.param("fork", 0, marks=pytest.mark.slow),
    ],
)
def test_however_a_program_ends_nothing_is_left(way: str, status: int) -> None:
    with tempfile.TemporaryDirectory(prefix="e") as folder:
        ended, family, said = run_script(way, Path(folder))
        assert ended == status, said
        assert ("of the program" in said) == (way == "raise")
        assert "WARNING" not in said  # a start and an end are no reason for a log line
        _, alive = psutil.wait_procs(family, timeout=30)
        assert not alive
        deadline = time.monotonic() + 20
        while left := os.listdir(folder):
            assert time.monotonic() < deadline, left
            time.sleep(0.05)


def test_one_engine_after_another() -> None:
    for _ in range(2):
        engine = tokenrouter.Engine(models=TIMED)
        many = engine.generate(["a"] * 3000, {"max_new_tokens": 3})  # more than a server holds
        assert [len(answer["output_ids"]) for answer in many] == [3] * 3000
        failed: list[BaseException] = []

        def ask(engine: tokenrouter.Engine = engine, failed: list[Any] = failed) -> None:
            try:
                engine.generate("a", {"max_new_tokens": 30_000})
            except tokenrouter.errors.TokenRouterError as error:
                failed.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.3)
        engine.shutdown()
        engine.shutdown()
        asking.join(30)
        assert failed
        with pytest.raises(EngineClosedError, match="was shut down"):
            engine.generate("a")
        assert not psutil.pid_exists(engine.pid)


@pytest.mark.slow
def test_the_example_of_the_manual() -> None:
    manual = (Path(__file__).parents[2] / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", manual, re.DOTALL)
    [example] = [block for block in blocks if "tokenrouter.Engine(" in block]
    ours = example.replace('"config.yaml"', "demo=True")
    done = subprocess.run(
        [sys.executable, "-c", ours + "print(len(answers))"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "'algorithm': 'entropy', 'router_threshold': 0.3" in done.stdout
    assert done.stdout.endswith("\n2\n")


# httpcore leaves a socket that was refused to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.parametrize("victim", ["fast", "front-end"])
def test_a_process_that_dies_is_replaced(victim: str) -> None:
    with tokenrouter.Engine(models=TIMED) as engine:
        stream = engine.generate("a", {"max_new_tokens": 30_000}, stream=True)
        next(stream)
        for process in psutil.Process(engine.pid).children(recursive=True):
            if process.cmdline()[0] == f"tokenrouter[tokenrouter:unix]::{victim}":
                process.kill()
        died = time.monotonic()
        with pytest.raises(MemberDeadError):
            list(stream)
        assert time.monotonic() - died < 2
        while True:  # it may be asked again, until it answers
            try:
                answer = engine.generate("a", {"max_new_tokens": 3})
                break
            except MemberDeadError:
                assert time.monotonic() - died < 60
                time.sleep(0.2)
        assert len(answer["output_ids"]) == 3


def test_an_engine_whose_processes_died_says_so() -> None:
    with tokenrouter.Engine(models=TIMED) as engine:
        os.kill(engine.pid, signal.SIGKILL)
        os.waitid(os.P_PID, engine.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(EngineClosedError, match="killed by SIGKILL"):
            engine.generate("a")
