"""Work in a process of its own: its result, its errors, its end, its limits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tokenrouter.subserver.sglang_compat import grammar_process
from tokenrouter.subserver.sglang_compat.grammar_process import run_apart

pytestmark = pytest.mark.timeout(60)


def spin() -> str:
    while True:
        pass


def wrong() -> str:
    raise ValueError("[03:04:05] /project/cpp/x.cc:73: Unclosed 'é'")


def test_a_result_of_any_size() -> None:
    assert run_apart(lambda: "é" * 1_000_000) == "é" * 1_000_000


def test_an_error_is_told_without_where_xgrammar_met_it() -> None:
    with pytest.raises(ValueError, match=r"^Unclosed 'é'$"):
        run_apart(wrong)


@pytest.mark.parametrize("end", [os.abort, lambda: os._exit(0), lambda: os._exit(3)])
def test_an_end_without_a_result(end: object) -> None:
    with pytest.raises(ValueError, match="cannot compile"):
        run_apart(end)  # type: ignore[arg-type]


def test_processor_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_process, "CPU_SECONDS", 1)
    with pytest.raises(ValueError, match="more than 1 s"):
        run_apart(spin)


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_process, "MEMORY_BYTES", 64 << 20)
    with pytest.raises(ValueError, match="too much memory"):
        run_apart(lambda: "x" * (1 << 30))


def test_nothing_of_the_parent_stays_open() -> None:
    reader, writer = os.pipe()
    busy = threading.Thread(target=run_apart, args=(lambda: time.sleep(1.5) or "",))
    busy.start()
    time.sleep(0.3)
    os.close(writer)
    started = time.monotonic()
    assert os.read(reader, 1) == b"", "the end of the pipe is seen while the work goes on"
    assert time.monotonic() - started < 1
    assert busy.is_alive()
    busy.join()
    os.close(reader)


def test_no_process_and_no_descriptor_is_left() -> None:
    before = os.listdir("/proc/self/fd"), children()
    for _ in range(3):
        run_apart(lambda: "done")
    assert (os.listdir("/proc/self/fd"), children()) == before


def children() -> set[str]:
    """Processes of ours, dead ones that nobody has waited for included."""
    tasks = Path("/proc/self/task").iterdir()
    return {pid for task in tasks for pid in (task / "children").read_text().split()}


KILLED = """
import os, signal, threading, time
from pathlib import Path
from tokenrouter.subserver.sglang_compat.cpu_imports import prepare_sglang_import
prepare_sglang_import()
from tokenrouter.subserver.sglang_compat.grammar_process import run_apart
threading.Thread(target=run_apart, args=(lambda: time.sleep(60) or "",)).start()
tasks = Path("/proc/self/task")
while not (found := "".join((t / "children").read_text() for t in tasks.iterdir()).split()):
    time.sleep(0.01)
time.sleep(0.3)  # until it has asked to die with its parent
print(found[0], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_dies_with_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, timeout=50)
    child = Path("/proc") / done.stdout.decode().strip()
    assert done.returncode == -signal.SIGKILL and child.name.isdigit(), done.stderr
    deadline = time.monotonic() + 5
    while child.exists() and "Z (zombie)" not in (child / "status").read_text():
        assert time.monotonic() < deadline, "still there"
        time.sleep(0.02)
