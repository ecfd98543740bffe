"""Writing log lines to stderr without ever waiting for whoever reads it.

`logs.set_up` makes one per process. A full disk, a closed pipe or a reader that has stopped
costs log lines, which are counted, and nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import stat
import threading
from abc import abstractmethod
from queue import SimpleQueue

from tokenrouter.processes.signals import start_without_signals

MAX_LINE_BYTES = 64 * 1024
"""The rest of a longer line is cut."""
MAX_QUEUED_BYTES = 4 * 1024 * 1024
"""Lines beyond are dropped until the reader has caught up."""
FLUSH_LIMIT_S = 1.0
"""How long the end of the process waits for its last lines to be taken."""
CUT = b" [...]\n"
STDERR = 2


class LineHandler(logging.Handler):
    """What both handlers share: a record becomes one bounded line; losses are counted."""

    @property
    @abstractmethod
    def dropped(self) -> int:
        """Lines that nobody will see."""

    def line(self, record: logging.LogRecord) -> bytes:
        """The encoded line of ``record``."""
        try:
            text = self.format(record)
        except Exception as error:  # noqa: BLE001 - a wrong log call must not fail its caller
            text = self.format(_plain("a log call failed (%r): %r", error, record.msg))
        data = text.encode("utf-8", "backslashreplace") + b"\n"
        return data if len(data) <= MAX_LINE_BYTES else data[: MAX_LINE_BYTES - len(CUT)] + CUT

    def loss(self, lines: int) -> bytes:
        """A line that tells of lost ones."""
        return self.line(_plain("%d log lines were lost: stderr did not take them", lines))


class DirectHandler(LineHandler):
    """Writes at once what can be written without waiting, and drops the rest.

    For the zygote, which may have no second thread when it forks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._descriptor = unblocked_stderr()
        self._socket: socket.socket | None = None
        if stat.S_ISSOCK(os.fstat(STDERR).st_mode):  # of the system's journal, for example
            self._socket = socket.socket(fileno=os.dup(STDERR))
        self._lost = self._told = 0
        self._torn = False

    @property
    def dropped(self) -> int:
        """Lines that nobody will see."""
        return self._lost

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, or count it as lost."""
        lost = self._lost
        loss = self.loss(lost - self._told) if lost > self._told else b""
        data = b"\n" * self._torn + loss + self.line(record)
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        written = 0
        with contextlib.suppress(OSError):  # counted, as nobody can be told
            if poll.poll(0):
                written = self._write(data)
        if written == len(data):
            self._told, self._torn = lost, False
        else:
            self._lost, self._torn = lost + 1, self._torn or written > 0

    def _write(self, data: bytes) -> int:
        if self._socket is None:
            return os.write(self._descriptor, data)
        return self._socket.send(data, socket.MSG_DONTWAIT)

    def close(self) -> None:
        """Close the descriptors that are its own."""
        if self._socket is not None:
            self._socket.close()
        if self._descriptor != STDERR:
            os.close(self._descriptor)
            self._descriptor = STDERR
        super().close()


class QueueHandler(LineHandler):
    """Hands lines to a thread that writes them. The queue holds `MAX_QUEUED_BYTES`."""

    def __init__(self) -> None:
        super().__init__()
        self._queue: SimpleQueue[bytes | threading.Event | None] = SimpleQueue()
        # Each number has one writer: the first two those who log (one at a time), the
        # others the thread.
        self._queued = self._refused = 0
        self._taken = self._failed = self._told = 0
        self._torn = False
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        start_without_signals(self._thread)

    @property
    def dropped(self) -> int:
        """Lines that nobody will see."""
        return self._refused + self._failed

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record, or count it as lost."""
        if self._queued - self._taken >= MAX_QUEUED_BYTES:
            self._refused += 1
            return
        line = self.line(record)
        self._queued += len(line)
        self._queue.put(line)

    def flush(self) -> None:
        """Wait until everything is written, at most `FLUSH_LIMIT_S`."""
        if self._thread.is_alive():  # not in a fork of the process it was made in
            done = threading.Event()
            self._queue.put(done)
            done.wait(FLUSH_LIMIT_S)

    def close(self) -> None:
        """End the thread, once it has written what is queued."""
        self._queue.put(None)
        super().close()

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            lost = self.dropped
            loss = self.loss(lost - self._told) if lost > self._told else b""
            if self._write(loss + item):
                self._told = lost
            else:
                self._failed += 1
            self._taken += len(item)

    def _write(self, data: bytes) -> bool:
        """Write all of ``data``, however long that takes; False if that is not possible."""
        if self._torn:
            data = b"\n" + data
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(STDERR, left) :]
            except BlockingIOError:  # somebody who shares it has made it so
                poll = select.poll()
                poll.register(STDERR, select.POLLOUT)
                poll.poll()
            except OSError:
                self._torn = self._torn or len(left) < len(data)
                return False
        self._torn = False
        return True


def _plain(message: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord(__name__, logging.WARNING, "", 0, message, values, None)


def unblocked_stderr() -> int:
    """A descriptor of stderr for those who may not wait.

    If stderr is a pipe, it is opened once more, so that only this descriptor never blocks.
    """
    if stat.S_ISFIFO(os.fstat(STDERR).st_mode):
        with contextlib.suppress(OSError):  # somebody else's, or nobody reads it
            return os.open(f"/proc/self/fd/{STDERR}", os.O_WRONLY | os.O_NONBLOCK)
    return STDERR
