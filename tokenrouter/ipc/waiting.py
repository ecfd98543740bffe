"""Waiting for messages without missing a signal."""

from __future__ import annotations

import contextlib
import math
import signal
import socket
from collections.abc import Sequence

import zmq

from tokenrouter.ipc.supervision import ChildLink


class Waiter:
    """Waits for any of ``sockets`` and for news on ``link``.

    A signal with a Python handler ends the wait at once.

    Without it, a signal that arrives between the interpreter's last look and the poll's
    system call would be acted on only after the next message: it also writes to a descriptor
    that is polled here. One per process, made in the main thread.
    """

    def __init__(self, sockets: Sequence[zmq.Socket[bytes]], link: ChildLink | None = None) -> None:
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._poller = zmq.Poller()
        for each in sockets:
            self._poller.register(each, zmq.POLLIN)
        self._poller.register(self._woken, zmq.POLLIN)
        if link is not None:
            self._poller.register(link, zmq.POLLIN)
        self._before = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)

    def wait(self, timeout: float | None) -> list[zmq.Socket[bytes]]:
        """The sockets where something waits.

        Returns once there is one, there is news, a signal came, or ``timeout`` seconds passed.
        """
        events = self._poller.poll(None if timeout is None else math.ceil(timeout * 1e3))
        ready = []
        for each, _ in events:
            if isinstance(each, zmq.Socket):
                ready.append(each)
            elif each == self._woken.fileno():  # what is not ZeroMQ's goes by its number
                self._woken.recv(4096)
        return ready

    def wake(self) -> None:
        """End a `wait`, now or the next one, at once; from any thread."""
        with contextlib.suppress(BlockingIOError):  # full: it will end
            self._waker.send(b"\0")

    def close(self) -> None:
        """Leave signals as they were."""
        signal.set_wakeup_fd(self._before)
        self._woken.close()
        self._waker.close()
