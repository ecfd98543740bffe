"""Work in a process of its own: its result, its errors, its end, its limits."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tokenrouter.errors import OverloadedError
from tokenrouter.subserver.sglang_compat import apart
from tokenrouter.subserver.sglang_compat.apart import Apart, Limits, TooSlowError

pytestmark = pytest.mark.timeout(60)


def spin() -> str:
    while True:
        pass


def wrong() -> str:
    raise ValueError("[03:04:05] /project/cpp/x.cc:73: Unclosed 'é'")


def test_a_result_of_any_size() -> None:
    assert Apart().run(lambda: "é" * 1_000_000) == "é" * 1_000_000


def test_an_error_is_told_without_where_xgrammar_met_it() -> None:
    with pytest.raises(ValueError, match=r"^Unclosed 'é'$"):
        Apart().run(wrong)


@pytest.mark.parametrize("end", [os.abort, lambda: os._exit(0), lambda: os._exit(3)])
def test_an_end_without_a_result(end: object) -> None:
    with pytest.raises(ValueError, match="cannot compile"):
        Apart().run(end)  # type: ignore[arg-type]


def test_processor_time_is_limited() -> None:
    with pytest.raises(TooSlowError, match="more than 1 s"):
        Apart().run(spin, Limits(cpu=1, wall=50.0))


def test_time_by_the_clock_is_limited() -> None:
    started = time.monotonic()
    with pytest.raises(OverloadedError, match=r"0.5 s were too few .*; retry"):
        Apart().run(lambda: time.sleep(60) or "", Limits(cpu=20, wall=0.5))
    assert time.monotonic() - started < 10


def test_what_used_its_time_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_read", lambda *_: time.sleep(0.2))
    with pytest.raises(TooSlowError, match="more than 1e-05 s"):
        Apart().run(spin, Limits(cpu=20, wall=1e-5))


def test_what_is_cancelled_ends_or_never_begins() -> None:
    work, caught = Apart(), []

    def run() -> None:
        with pytest.raises(OverloadedError, match="nobody waits") as error:
            work.run(lambda: time.sleep(60) or "")
        caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while work._pid is None:
        time.sleep(0.01)
    child = work._pid
    work.cancel()
    thread.join(10)
    assert caught and not Path(f"/proc/{child}").exists()
    work.cancel()
    with pytest.raises(OverloadedError, match="nobody waits"):
        work.run(os.abort)


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "MEMORY_BYTES", 64 << 20)
    with pytest.raises(ValueError, match="too much memory"):
        Apart().run(lambda: "x" * (1 << 30))


def test_nothing_of_the_parent_stays_open() -> None:
    reader, writer = os.pipe()
    busy = threading.Thread(target=Apart().run, args=(lambda: time.sleep(1.5) or "",))
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
        Apart().run(lambda: "done")
    assert (os.listdir("/proc/self/fd"), children()) == before


def children() -> set[str]:
    """Processes of ours, dead ones that nobody has waited for included."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that ended meanwhile
            found.update((task / "children").read_text().split())
    return found


KILLED = """
import os, signal, threading, time
from pathlib import Path
from tokenrouter.subserver.sglang_compat.cpu_imports import prepare_sglang_import
prepare_sglang_import()
from tokenrouter.subserver.sglang_compat.apart import Apart
threading.Thread(target=Apart().run, args=(lambda: time.sleep(60) or "",)).start()
def children():
    for task in Path("/proc/self/task").iterdir():
        try:
            yield from (task / "children").read_text().split()
        except FileNotFoundError:
            pass  # a thread that ended meanwhile
while not (found := [*children()]):
    time.sleep(0.01)
time.sleep(1)  # until it has asked to die with its parent
print(found[0], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_dies_with_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, timeout=50)
    child = Path("/proc") / done.stdout.decode().strip()
    assert done.returncode == -signal.SIGKILL and child.name.isdigit(), done.stderr
    deadline = time.monotonic() + 20
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while "Z (zombie)" not in (child / "status").read_text():
            assert time.monotonic() < deadline, "still there"
            time.sleep(0.02)
