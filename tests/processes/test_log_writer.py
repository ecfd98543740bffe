"""Stderr that blocks, is full, or is gone: lines are lost and counted, nothing waits or dies."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

LINE_BYTES = 10_000
"""More than a pipe takes at once."""
PRELUDE = """
import json, logging, os, sys, threading, time
from tokenrouter.processes import log_writer, logs
logs.set_up("tester", "info", single_threaded={single!r})
logger = logging.getLogger("t")

def report(**values):
    print(json.dumps({{"dropped": logs.dropped_lines(), **values}}), flush=True)

def flood(lines, size=10_000):
    began = time.monotonic()
    for i in range(lines):
        logger.info("%06d %s", i, "x" * size)
    return time.monotonic() - began
"""
EITHER = pytest.mark.parametrize("single", [False, True], ids=["queue", "direct"])


def start(code: str, single: bool = False, **options: object) -> subprocess.Popen[bytes]:
    program = PRELUDE.format(single=single) + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options,
    )  # fmt: skip


def told(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def finish(process: subprocess.Popen[bytes]) -> int:
    process.communicate(timeout=20)
    return process.returncode


@EITHER
def test_lines_arrive_whole_and_in_order(single: bool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = start("report(seconds=flood(200))", single, stderr=file)
        assert told(process)["dropped"] == 0
        assert finish(process) == 0
    lines = log.read_text().splitlines()
    assert [line.split()[4] for line in lines] == [f"{i:06d}" for i in range(200)]
    assert all(line.endswith("x" * LINE_BYTES) for line in lines)


@EITHER
def test_a_reader_that_stops_delays_nobody_and_is_told_what_it_missed(single: bool) -> None:
    code = """
    report(seconds=flood(2000))
    sys.stdin.readline()
    deadline = time.monotonic() + 10
    while "last" not in globals():
        logger.info("again")
        before = logs.dropped_lines()
        time.sleep(0.02)
        logger.info("after")
        if logs.dropped_lines() == before:
            last = True
        assert time.monotonic() < deadline
    report()
    """
    process = start(code, single, stderr=subprocess.PIPE)
    first = told(process)
    assert first["seconds"] < 5
    assert 0 < first["dropped"] < 2000
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    lines = errors.decode().splitlines()
    kept = sum(line.endswith("x" * LINE_BYTES) for line in lines)
    lost = [int(line.split()[4]) for line in lines if "log lines were lost" in line]
    again = sum(line.endswith(("again", "after")) for line in lines)
    assert kept >= 2000 - first["dropped"] - 1  # one line may have been cut by the full pipe
    assert sum(lost) >= first["dropped"]
    assert again >= 1


@EITHER
def test_a_queue_of_bounded_size(single: bool) -> None:
    code = """
    import resource
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    flood(3000, 60_000)
    report(grown=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    os._exit(0)
    """
    process = start(code, single, stderr=subprocess.PIPE)
    answer = told(process)
    assert answer["dropped"] > 2500
    assert answer["grown"] < 40 * 1024  # KiB; 180 MB were logged
    process.wait(20)
    for pipe in (process.stdin, process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()


@EITHER
def test_a_pipe_without_a_reader(single: bool) -> None:
    code = """
    sys.stdin.readline()
    flood(50)
    logging.getLogger().handlers[0].flush()
    report()
    """
    process = start(code, single, stderr=subprocess.PIPE)
    assert process.stderr is not None and process.stdin is not None
    process.stderr.close()
    process.stderr = None
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert told(process)["dropped"] == 50
    assert finish(process) == 0


@EITHER
def test_a_full_disk(single: bool) -> None:
    code = """
    flood(50)
    logging.getLogger().handlers[0].flush()
    report()
    """
    with open("/dev/full", "wb") as full:
        process = start(code, single, stderr=full)
        assert told(process)["dropped"] == 50
        assert finish(process) == 0


def test_a_disk_that_fills_up_and_is_emptied_leaves_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = """
    import resource
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (25_000, limits[1]))
    flood(4)
    logging.getLogger().handlers[0].flush()
    report()
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    logger.info("there is room again")
    """
    with log.open("wb") as file:
        process = start(code, stderr=file)
        assert told(process)["dropped"] == 2
        assert finish(process) == 0
    lines = log.read_text().splitlines()
    assert [line.split()[4] for line in lines[:3]] == ["000000", "000001", "000002"]
    assert "2 log lines were lost" in lines[3]
    assert lines[4].endswith("there is room again")
    assert len(lines) == 5


def test_the_end_waits_for_a_stuck_reader_only_a_moment() -> None:
    process = start("flood(100)\nreport()", stderr=subprocess.PIPE)
    told(process)
    began = time.monotonic()
    assert process.wait(10) == 0
    assert time.monotonic() - began < 4
    for pipe in (process.stdin, process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()


def test_an_error_just_before_the_end_is_written() -> None:
    code = "logger.error('last words')\nlogging.shutdown()\nos._exit(3)"
    process = start(code, stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 3
    assert errors.decode().endswith("tester ERROR last words\n")


def test_one_thread_that_ends_with_its_handler_and_none_without_waiting() -> None:
    for single, threads in ((False, [2, 2, 1]), (True, [1, 1, 1])):
        code = """
        counts = [threading.active_count()]
        logger.info("x")
        logging.getLogger().handlers[0].flush()
        counts.append(threading.active_count())
        logs.set_up("again", "info", single_threaded=True)
        [each.join(5) for each in threading.enumerate()[1:]]
        report(counts=[*counts, threading.active_count()])
        """
        process = start(code, single, stderr=subprocess.DEVNULL)
        assert told(process)["counts"] == threads
        assert finish(process) == 0


def test_a_forked_child_logs_for_itself() -> None:
    code = """
    logger.info("parent")
    pid = os.fork()
    if pid == 0:
        logs.set_up("child", "info")
        logger.info("hello")
        logging.shutdown()
        os._exit(0)
    os.waitpid(pid, 0)
    """
    process = start(code, stderr=subprocess.PIPE)
    began = time.monotonic()
    _, errors = process.communicate(timeout=20)
    assert time.monotonic() - began < 5
    lines = [" ".join(line.split()[2:]) for line in errors.decode().splitlines()]
    assert lines == ["tester INFO parent", "child INFO hello"]


def test_signals_still_interrupt_the_main_thread() -> None:
    code = """
    import signal
    class Stop(Exception): pass
    def stop(number, frame): raise Stop
    signal.signal(signal.SIGTERM, stop)
    began = time.monotonic()
    try:
        report()
        time.sleep(20)
    except Stop:
        report(waited=time.monotonic() - began)
    """
    process = start(code, stderr=subprocess.DEVNULL)
    told(process)
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGTERM)
    assert told(process)["waited"] < 5
    assert finish(process) == 0


def test_a_wrong_log_call_and_a_long_line() -> None:
    code = """
    class Broken:
        def __repr__(self): raise RuntimeError("no repr")
    logger.info("%d", "no number")
    logger.info("%r", Broken())
    logger.info("lone \\ud800 surrogate")
    logger.info("y" * 1_000_000)
    """
    process = start(code, stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    lines = errors.decode().splitlines()
    assert "a log call failed" in lines[0] and "'%d'" in lines[0]
    assert "a log call failed" in lines[1] and "no repr" in lines[1]
    assert lines[2].endswith("lone \\ud800 surrogate")
    assert len(lines[3]) < 65_536 and lines[3].endswith("y [...]")
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("descriptor", "waits"), [("log_writer.unblocked_stderr()", False), ("2", True)]
)
def test_a_crash_does_not_wait_for_a_stuck_reader(descriptor: str, waits: bool) -> None:
    code = f"""
    import faulthandler, signal
    faulthandler.enable({descriptor})
    report(seconds=flood(50))
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGSEGV)
    """
    process = start(code, stderr=subprocess.PIPE)
    told(process)
    if waits:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)
        process.kill()
    else:
        assert process.wait(10) == -signal.SIGSEGV
    process.communicate()


@EITHER
def test_a_socket_whose_reader_stops(single: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = start("report(seconds=flood(2000))", single, stderr=theirs)
        answer = told(process)
        assert answer["seconds"] < 5
        assert 0 < answer["dropped"] < 2000
        assert finish(process) == 0
