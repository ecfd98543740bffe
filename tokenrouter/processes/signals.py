"""Stop signals as events of a selector loop, and threads that leave signals alone."""

from __future__ import annotations

import signal
import socket
import threading
from types import FrameType, TracebackType

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """While entered, SIGTERM, SIGINT and SIGHUP only make `fileno` readable.

    Those that were ignored stay ignored (nohup, a shell's background job). For the main
    thread of a process.
    """

    def __enter__(self) -> StopSignals:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._before = {
            number: signal.signal(number, _nothing)
            for number in STOP
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._reader.close()
        self._writer.close()

    def fileno(self) -> int:
        """For a selector."""
        return self._reader.fileno()

    def arrived(self) -> list[signal.Signals]:
        """The stop signals since the last call."""
        try:
            numbers = self._reader.recv(4096)
        except BlockingIOError:
            return []
        return [signal.Signals(number) for number in numbers if number in self._before]


def start_without_signals(thread: threading.Thread) -> None:
    """Start a thread that takes no signals: they are for the main thread, whose waits they end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _nothing(number: int, frame: FrameType | None) -> None:
    """The wake-up descriptor tells the loop; a handler must exist for that."""
