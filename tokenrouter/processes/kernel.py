"""The little that is asked of Linux: dying with the parent, waking on time, exit statuses."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent (pid ``parent``) is gone.

    Raises:
        SystemExit: it is gone already.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        raise SystemExit(1)


def outlive_parent() -> None:
    """Undo `die_with`."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def wake_on_time() -> None:
    """End this thread's sleeps within a microsecond of their time, not within 50."""
    _prctl(_PR_SET_TIMERSLACK, 1000)


def yield_to_members() -> None:
    """Let this process's threads wake without pushing running ones from their cores.

    A member tells others what a step gave, and must go on to its next step before they run.
    """
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def parent_of(pid: int) -> int:
    """The parent of a process; 0: there is no such process."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(status.rpartition(")")[2].split()[1])


def allow_descriptors() -> None:
    """Let this process open as many descriptors as its user may: each client is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def describe_exit(status: int) -> str:
    """Words for an exit status (negative: the signal that killed the process)."""
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = "; the machine may be out of memory" if -status == signal.SIGKILL else ""
    return f"killed by {name}{hint}"
