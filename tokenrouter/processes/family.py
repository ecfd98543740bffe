"""The processes of one deployment as events see them: who is ready, who died, and why.

One selector waits for the zygote's reports, the children's links and stop signals.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
from dataclasses import dataclass, field
from functools import partial

from tokenrouter.errors import StartupError
from tokenrouter.ipc.supervision import (
    ChildMessage,
    Hello,
    MemberReady,
    Ready,
    Roster,
    Serving,
    StartupFailed,
    StreamDecoder,
    encode,
)
from tokenrouter.processes import protocol
from tokenrouter.processes.kernel import describe_exit
from tokenrouter.processes.signals import StopSignals
from tokenrouter.processes.zygote_handle import ZygoteHandle

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Link:
    """A connection to the supervisor's socket; ``name`` is known after its hello."""

    socket: socket.socket
    decoder: StreamDecoder = field(default_factory=StreamDecoder)
    name: str = ""


class Family:
    """Starts what ``launch`` says, and keeps account of it.

    Attributes:
        waiting: children that have not reported that they are ready.
        alive: children that run, or will be started.
        members: what the ready members reported, by index.
        url: where the front end answers, once it does.
        failure: the first thing that went wrong, in words.
        stops: stop signals that have arrived.
    """

    def __init__(self, launch: protocol.Launch, signals: StopSignals) -> None:
        self.waiting = {child.name for child in launch.children}
        self.alive = set(self.waiting)
        self.members: dict[int, MemberReady] = {}
        self.url: str | None = None
        self.failure: str | None = None
        self.stops = 0
        self._forked = False
        self._zygote_lives = True
        self._links: list[_Link] = []
        self._signals = signals
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(os.fspath(launch.ports.supervisor))
        self._listener.listen(len(launch.children))
        self._listener.setblocking(False)
        self._zygote = ZygoteHandle()
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals, selectors.EVENT_READ, self._on_signal)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._zygote, selectors.EVENT_READ, self._on_report)
        self._zygote.order(launch)

    def poll(self, timeout: float | None) -> None:
        """Wait for something to happen, at most ``timeout`` seconds, and take account of it."""
        for key, _ in self._selector.select(timeout):
            key.data()

    def broadcast(self, roster: Roster) -> None:
        """Tell every child who its peers are."""
        data = encode(roster)
        for link in self._links:
            with contextlib.suppress(OSError):  # a dead child is noticed by its exit
                link.socket.sendall(data)

    def signal(self, number: int) -> bool:
        """Have every child sent a signal; False if there is nobody to do it."""
        if self._forked and self._zygote_lives:
            self._zygote.order(protocol.Signal(number))
            return True
        return False

    def close(self) -> None:
        """Kill whatever is left, and close every descriptor."""
        self._selector.close()
        self._zygote.end()
        self._listener.close()
        for link in self._links:
            link.socket.close()

    def _on_signal(self) -> None:
        self.stops += len(self._signals.arrived())

    def _fail(self, what: str) -> None:
        if self.failure is None:
            self.failure = what

    def _on_report(self) -> None:
        match self._zygote.report():
            case None:
                self._selector.unregister(self._zygote)
                self._zygote_lives = False
                self.alive.clear()
                self._fail(f"the zygote died ({self._zygote.end()}), and every process with it")
            case protocol.PrepareFailed(reason):
                self._fail(reason)
            case protocol.Prepared(seconds, threads):
                self._forked = True
                logger.debug("zygote: imports took %.2f s, threads %s", seconds, list(threads))
            case protocol.Forked(name, pid):
                logger.debug("%s: started as process %d", name, pid)
            case protocol.Exited(name, _, status):
                self._exited(name, status)

    def _exited(self, name: str, status: int) -> None:
        # Its last words may still wait to be read, and they say more than its status.
        self._accept()
        for link in self._links:
            self._read(link)
        self.alive.discard(name)
        self._fail(f"{name} died ({describe_exit(status)}); its log says more")

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                link = _Link(connection)
                self._links.append(link)
                self._selector.register(connection, selectors.EVENT_READ, partial(self._read, link))

    def _read(self, link: _Link) -> None:
        if link.socket.fileno() < 0:
            return
        try:
            while data := link.socket.recv(65536):
                for message in link.decoder.feed(data):
                    self._take(link, message)
        except BlockingIOError:
            return
        except ConnectionResetError:
            pass  # it died; the zygote will say how
        except StartupError as error:
            self._fail(f"{link.name or 'an unknown process'}: {error}")
        self._selector.unregister(link.socket)
        link.socket.close()

    def _take(self, link: _Link, message: ChildMessage) -> None:
        match message:
            case Hello(name, _):
                link.name = name
            case MemberReady(member=index):
                self.members[index] = message
                self.waiting.discard(link.name)
            case Ready():
                self.waiting.discard(link.name)
            case Serving(url):
                self.url = url
            case StartupFailed(reason):
                self._fail(f"{link.name}: {reason}")
