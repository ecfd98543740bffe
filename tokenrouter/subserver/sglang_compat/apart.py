"""Work in a process of its own, which may crash, loop, eat memory, or be wanted no more.

Used by `grammar_process.py` in the compiler's threads: what crosses is text. So the interpreter's
lock, which a member's loop needs, is never held long.
"""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from tokenrouter.errors import OverloadedError
from tokenrouter.processes.kernel import die_with

MEMORY_BYTES = 2 << 30
"""The work may use so much more memory than there is."""
PREFIX = re.compile(r"^\[[\d:]+\] \S+:\d+: ")
"""Of xgrammar's errors: the time, and a line of its source."""
_OK, _WRONG = b"+", b"-"
_CHUNK = 1 << 20


class Limits(NamedTuple):
    """Seconds of processor time, whole, and seconds by the clock."""

    cpu: int
    wall: float


MOST = Limits(cpu=20, wall=20.0)


class TooSlowError(ValueError):
    """The work took more time than it may."""


class Apart:
    """One piece of work, which another thread may cancel at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._killed = False

    def cancel(self) -> None:
        """End the process if it runs; it will not be started if it does not."""
        with self._lock:
            self._killed = True
            if self._pid is not None:
                os.kill(self._pid, signal.SIGKILL)

    def run(self, work: Callable[[], str], limits: Limits = MOST) -> str:
        """What ``work`` returns in a forked process; blocks this thread alone.

        Raises:
            TooSlowError: it took more time than ``limits``.
            ValueError: it raised, ended its process, or took too much memory.
            OverloadedError: it had no turn within its limit, or was cancelled.
            OSError: the machine has no room for a process.
        """
        reader, writer = os.pipe()
        try:
            try:
                pid = self._start(writer, work, limits)
            finally:
                os.close(writer)
            data = _read(reader, time.monotonic() + limits.wall)
        finally:
            os.close(reader)
        if data is None:
            os.kill(pid, signal.SIGKILL)
        with self._lock:
            self._pid = None  # from here on its number may become another's
        _, status, used = os.wait4(pid, 0)
        if data is None:
            cpu = used.ru_utime + used.ru_stime
            return _expired(limits, cpu)
        return self._result(data, os.waitstatus_to_exitcode(status), limits)

    def _start(self, writer: int, work: Callable[[], str], limits: Limits) -> int:
        parent = os.getpid()
        with self._lock:
            if self._killed:
                raise OverloadedError("nobody waits for it any more")
            pid = os.fork()
            if pid == 0:
                _child(parent, writer, work, limits)
            self._pid = pid
        return pid

    def _result(self, data: bytes, code: int, limits: Limits) -> str:
        kind, text = data[:1], data[1:].decode("utf-8", "replace")
        if kind == _OK and code == 0:
            return text
        if kind == _WRONG:
            raise ValueError(PREFIX.sub("", text).strip())
        if self._killed:
            raise OverloadedError("nobody waits for it any more")
        if -code in (signal.SIGXCPU, signal.SIGKILL):
            raise TooSlowError(_too_slow(limits.cpu))
        raise ValueError("xgrammar cannot compile it; is a part of it empty, or too deep?")


def _expired(limits: Limits, cpu: float) -> str:
    """Raise what it is to have used so much processor time within the limit by the clock."""
    if cpu >= limits.wall / 2:
        raise TooSlowError(_too_slow(limits.wall))
    raise OverloadedError(f"{limits.wall:g} s were too few to compile it beside others; retry")


def _too_slow(seconds: float) -> str:
    return f"takes more than {seconds:g} s to compile; make it simpler"


def _read(reader: int, deadline: float) -> bytes | None:
    """All that the process writes; None if that did not end in time."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    chunks: list[bytes] = []
    while (left := deadline - time.monotonic()) > 0 and poll.poll(left * 1000):
        chunk = os.read(reader, _CHUNK)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
    return None


def _child(parent: int, writer: int, work: Callable[[], str], limits: Limits) -> None:
    """Write the result of ``work``, or what is wrong, and end without cleaning up."""
    status = 1
    try:
        # Nothing of the member may be held open, or its peers could not see it die.
        os.dup2(writer, 0)
        os.closerange(1, os.sysconf("SC_OPEN_MAX"))
        die_with(parent)
        _limit(limits.cpu)
        os.nice(5)
        _write(_OK + work().encode())
        status = 0
    except MemoryError:
        _write(_WRONG + b"takes too much memory to compile; make it simpler")
    except Exception as error:  # noqa: BLE001 - the end of a process, told to its parent
        _write(_WRONG + str(error).encode("utf-8", "backslashreplace"))
    finally:
        os._exit(status)


def _limit(cpu_seconds: int) -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    memory = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(0, data) :]
