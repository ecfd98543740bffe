"""The processes of one deployment as events: what they say, and that they end.

One selector waits for the zygote's reports, the children's links and stop signals.
`startup.py` and `keeper.py` decide what follows from an event.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial

from tokenrouter.errors import StartupError
from tokenrouter.ipc.drops import Drops
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.supervision import (
    ChildMessage,
    Hello,
    StreamDecoder,
    SupervisorMessage,
    encode,
)
from tokenrouter.processes import protocol
from tokenrouter.processes.directory import SocketDirectory
from tokenrouter.processes.kernel import describe_exit, parent_of
from tokenrouter.processes.signals import StopSignals
from tokenrouter.processes.zygote_handle import ZygoteHandle

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Said:
    """A child's message."""

    name: str
    message: ChildMessage


@dataclass(frozen=True, slots=True)
class HungUp:
    """A child's link is closed: it is dead, or as good as dead.

    ``why``: in words; empty if its end of the link closed, as when it dies.
    """

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Gone:
    """A child ended, and ``how``, in words."""

    name: str
    how: str


@dataclass(frozen=True, slots=True)
class ZygoteAlive:
    """The zygote answered a probe."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The zygote has imported what the children share, in so many ``seconds``; it forks them."""

    seconds: float


Event = Said | HungUp | Gone | ZygoteAlive | Imported


@dataclass(slots=True, eq=False)
class _Link:
    """A connection to the supervisor's socket; ``name`` is known after its hello."""

    socket: socket.socket
    decoder: StreamDecoder = field(default_factory=StreamDecoder)
    name: str = ""


class Family:
    """Starts what ``launch`` says, and tells what becomes of it.

    Attributes:
        alive: children that run, or are being started.
        failure: why nothing can go on (the zygote failed or died), in words.
        stops: stop signals that have arrived.
        pids: of the children that were started, the last of each name.
    """

    def __init__(
        self, launch: protocol.Launch, directory: SocketDirectory, signals: StopSignals
    ) -> None:
        self.names = {child.name for child in launch.children}
        self.alive = {child.name for child in launch.children if child.wave == 0}
        self.failure: str | None = None
        self.stops = 0
        self._forked = False
        self._zygote_lives = True
        self.pids: dict[str, int] = {}
        self._links: dict[str, _Link] = {}
        self._strangers = Drops(os.fspath(launch.ports.supervisor), "connection")
        self._events: list[Event] = []
        self._signals = signals
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(os.fspath(launch.ports.supervisor))
        self._listener.listen(len(launch.children))
        self._listener.setblocking(False)
        self._zygote = ZygoteHandle(directory)
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals, selectors.EVENT_READ, self._on_signal)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._zygote, selectors.EVENT_READ, self._on_report)
        self._zygote.order(launch)

    def poll(self, timeout: float | None) -> list[Event]:
        """What happened; waits at most ``timeout`` seconds for the first thing."""
        for key, _ in self._selector.select(timeout):
            key.data()
        events, self._events = self._events, []
        return events

    def tell(self, names: Iterable[str], *messages: SupervisorMessage) -> None:
        """Send to children. One that does not even take its messages counts as hung up."""
        data = b"".join(map(encode, messages))
        for name in names:
            link = self._links.get(name)
            if link is None:
                continue  # it died
            try:
                link.socket.sendall(data)
            except BlockingIOError:
                self._hang_up(link, "it does not read what the supervisor tells it")
            except OSError:
                self._hang_up(link, "")

    def start(self, specs: tuple[protocol.ChildSpec, ...], ports: Ports | None = None) -> None:
        """Have children forked: of a later wave, or again."""
        self.alive |= {spec.name for spec in specs}
        self._zygote.order(protocol.Start(specs, ports))

    def signal(self, number: int, names: Collection[str] | None = None) -> bool:
        """Have children (None: all) sent a signal; False if there is nobody to do it."""
        if self._forked and self._zygote_lives:
            self._zygote.order(protocol.Signal(number, None if names is None else tuple(names)))
            return True
        return False

    def probe_zygote(self) -> None:
        """Ask it for a sign of life."""
        self._zygote.order(protocol.Probe(0))

    def close(self) -> None:
        """Kill whatever is left, and close every descriptor."""
        self._zygote.end()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

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
                self._events.append(Imported(seconds))
                logger.debug("zygote: imports took %.2f s, threads %s", seconds, list(threads))
            case protocol.Forked(name, pid):
                self.pids[name] = pid
                logger.debug("%s: started as process %d", name, pid)
            case protocol.Exited(name, _, status):
                self._exited(name, status)
            case protocol.Alive():
                self._events.append(ZygoteAlive())

    def _exited(self, name: str, status: int) -> None:
        # Its last words may still wait to be read, and they say more than its status.
        self._accept()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, partial):
                key.data()
        self.alive.discard(name)
        self._events.append(Gone(name, describe_exit(status)))

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = self._listener.accept()
                pid = _peer(connection)
                # One that is dead already has been reported before it can be missing in /proc.
                if parent_of(pid) != self._zygote.pid and pid not in self.pids.values():
                    self._strangers.add("foreign", f"process {pid} is none of ours")
                    connection.close()
                    continue
                connection.setblocking(False)
                link = _Link(connection)
                self._selector.register(connection, selectors.EVENT_READ, partial(self._read, link))

    def _read(self, link: _Link) -> None:
        if link.socket.fileno() < 0:
            return
        try:
            while data := link.socket.recv(65536):
                for message in link.decoder.feed(data):
                    self._take(link, message)
            self._hang_up(link, "")
        except BlockingIOError:
            pass  # that was all
        except ConnectionResetError:
            self._hang_up(link, "")
        except StartupError as error:
            self._hang_up(link, str(error))

    def _take(self, link: _Link, message: ChildMessage) -> None:
        if link.name:
            self._events.append(Said(link.name, message))
            return
        if not isinstance(message, Hello) or message.name not in self.names:
            raise StartupError("supervision link: the first message is not a child's hello")
        link.name = message.name
        self._links[link.name] = link
        self.pids[link.name] = message.pid  # the zygote's report of it may come later

    def _hang_up(self, link: _Link, why: str) -> None:
        self._selector.unregister(link.socket)
        link.socket.close()
        if not link.name:
            logger.warning("dropped a connection: %s", why or "it said nothing")
        elif self._links.get(link.name) is link:
            del self._links[link.name]
            self._events.append(HungUp(link.name, why))


def _peer(connection: socket.socket) -> int:
    """The process at the other end, as the kernel knows it."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", data)[0]
    return pid
