"""Work in a process of its own: its result, its errors, its end, its limits."""

from __future__ import annotations

import os
import threading
import time

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
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        run_apart(lambda: "done")
    assert os.listdir("/proc/self/fd") == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
