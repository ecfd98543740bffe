"""The link between the supervisor and each process it watches.

A UNIX stream socket; a message is a 4-byte little-endian length and a msgpack array.

child -> supervisor:  Hello, MemberReady (members) or Ready (others), StartupFailed, Serving,
                      Pong, Busy, Stuck, Drained
supervisor -> child:  Roster, once every process is ready; then Ping, Down, Up, Drain

A process is named by its member's index, or by `messages.FRONT_END`, `DETOKENIZER` or `PLANNER`.
The order in which the supervisor tells of a restart is a promise: every other process has `Up`
in its link before the one that is back can send it anything.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from tokenrouter.errors import ChannelError, StartupError

MAX_BYTES = 1024 * 1024


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """The first message of a child."""

    name: str
    pid: int


class MemberReady(msgspec.Struct, frozen=True, array_like=True, tag="member_ready"):
    """A member has its weights and pools.

    ``pool_tokens`` and ``max_visits`` bound what it can hold, ``context_length`` one
    request. ``tokenizer`` is a fingerprint of its vocabulary (empty: takes any).
    """

    member: int
    pool_tokens: int
    max_visits: int
    context_length: int
    vocab_size: int
    eos_ids: tuple[int, ...]
    tokenizer: str


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """A process other than a member has finished loading."""


class StartupFailed(msgspec.Struct, frozen=True, array_like=True, tag="startup_failed"):
    """The child cannot start, and why."""

    reason: str


class Serving(msgspec.Struct, frozen=True, array_like=True, tag="serving"):
    """The front end answers at ``url``."""

    url: str


class Pong(msgspec.Struct, frozen=True, array_like=True, tag="pong"):
    """The child's loop turns: its answer to a `Ping`."""

    number: int


class Busy(msgspec.Struct, frozen=True, array_like=True, tag="busy"):
    """The child's loop is about to do something long: for ``seconds``, silence is no hang."""

    seconds: float


class Stuck(msgspec.Struct, frozen=True, array_like=True, tag="stuck"):
    """A process does not read what this one sends it: the link to it is full."""

    process: int
    generation: int


class Drained(msgspec.Struct, frozen=True, array_like=True, tag="drained"):
    """The front end's answer to `Drain`: no request is left."""


class Roster(msgspec.Struct, frozen=True, array_like=True, tag="roster"):
    """Every member of the deployment, in order: what each may hold, and its generation.

    ``others``: generations of the processes that are not members. ``restarts``: how often
    each process has been started again. ``pids``: of each process, in the order of its ranks.
    """

    members: tuple[MemberReady, ...]
    generations: tuple[int, ...]
    others: dict[int, int] = {}
    restarts: dict[int, int] = {}
    pids: dict[int, tuple[int, ...]] = {}

    @property
    def pool_tokens(self) -> int:
        """The smallest pool: what live requests must share."""
        return min(member.pool_tokens for member in self.members)

    @property
    def max_visits(self) -> int:
        """Requests that can be resident on every member at once."""
        return min(member.max_visits for member in self.members)

    def generation(self, process: int) -> int:
        """The generation of a process; 0 if it has none."""
        return self.generations[process] if process >= 0 else self.others.get(process, 0)

    def after(self, up: Up) -> Roster:
        """The roster once a process is back."""
        restarts = {**self.restarts, up.process: up.restarts}
        pids = {**self.pids, up.process: up.pids}
        if up.ready is None:
            others = {**self.others, up.process: up.generation}
            return Roster(self.members, self.generations, others, restarts, pids)
        members, generations = list(self.members), list(self.generations)
        members[up.process], generations[up.process] = up.ready, up.generation
        return Roster(tuple(members), tuple(generations), self.others, restarts, pids)


class Down(msgspec.Struct, frozen=True, array_like=True, tag="down"):
    """A process died. Nothing it knew will be known again.

    ``for_good``: it is not started again. Told once it is decided, after the news of its death.
    """

    process: int
    for_good: bool = False


class Up(msgspec.Struct, frozen=True, array_like=True, tag="up"):
    """A process that was down is there again, as another ``generation``.

    ``ready``: what it reported, if it is a member. ``restarts``: how often it was started
    again. ``pids``: of its ranks, in order.
    """

    process: int
    generation: int
    ready: MemberReady | None = None
    restarts: int = 0
    pids: tuple[int, ...] = ()


class Ping(msgspec.Struct, frozen=True, array_like=True, tag="ping"):
    """Asks for a sign of life: a `Pong` with the same ``number``."""

    number: int


class Drain(msgspec.Struct, frozen=True, array_like=True, tag="drain"):
    """Take no more requests, and say when none is left (for the front end)."""


ChildMessage = Hello | MemberReady | Ready | StartupFailed | Serving | Pong | Busy | Stuck | Drained
SupervisorMessage = Roster | Down | Up | Ping | Drain
News = Down | Up | Drain
"""What a child's loop is told while it serves."""
M = TypeVar("M")


class ChildLink:
    """The child's end: connects, says hello, reports, waits for the roster, hears the news.

    Readable (`fileno`) when there is something for `receive`.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._decoder = MessageStream(msgspec.msgpack.Decoder(SupervisorMessage))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(os.fspath(path))
        self.send(Hello(name, os.getpid()))

    def fileno(self) -> int:
        """For a poller."""
        return self._socket.fileno()

    def send(self, message: ChildMessage) -> None:
        """Tell the supervisor."""
        self._socket.sendall(encode(message))

    def roster(self) -> Roster:
        """Wait until every process is ready.

        Raises:
            StartupError: the supervisor went away first.
        """
        while True:
            # No byte more than the roster: a poller would not see what was read with it.
            header = self._read(4)
            messages = self._decoder.feed(header)  # none yet, but a bad length is refused
            messages += self._decoder.feed(self._read(struct.unpack("<I", header)[0]))
            if messages and isinstance(messages[0], Roster):
                return messages[0]

    def _read(self, count: int) -> bytes:
        data = self._socket.recv(count, socket.MSG_WAITALL)
        if len(data) < count:
            raise StartupError("the supervisor closed the link before start-up finished")
        return data

    def receive(self) -> list[News]:
        """The news, without waiting. Pings are answered: whoever calls this is alive.

        Raises:
            ChannelError: the supervisor is gone.
        """
        try:
            data = self._socket.recv(65536, socket.MSG_DONTWAIT)
            if not data:
                raise ChannelError("the supervisor is gone")
            messages = self._decoder.feed(data)
        except BlockingIOError:
            return []
        except ConnectionError as error:
            raise ChannelError("the supervisor is gone") from error
        news: list[News] = []
        for message in messages:
            if isinstance(message, Ping):
                self.send(Pong(message.number))
            elif not isinstance(message, Roster):
                news.append(message)
        return news


def encode(message: ChildMessage | SupervisorMessage) -> bytes:
    """A length-prefixed message."""
    data = msgspec.msgpack.encode(message)
    return struct.pack("<I", len(data)) + data


class MessageStream(Generic[M]):
    """Cuts a byte stream into messages."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[M]) -> None:
        self._buffer = b""
        self._decoder = decoder

    def feed(self, data: bytes) -> list[M]:
        """The messages that ``data`` completes.

        Raises:
            StartupError: the stream is not ours (bad length or content).
        """
        self._buffer += data
        messages: list[M] = []
        while len(self._buffer) >= 4:
            length = struct.unpack("<I", self._buffer[:4])[0]
            if length > MAX_BYTES:
                raise StartupError(f"supervision link: a message of {length} bytes")
            if len(self._buffer) < 4 + length:
                break
            try:
                messages.append(self._decoder.decode(self._buffer[4 : 4 + length]))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise StartupError(f"supervision link: {error}") from error
            self._buffer = self._buffer[4 + length :]
        return messages


class StreamDecoder(MessageStream[ChildMessage]):
    """Cuts a child's byte stream into messages (the supervisor's side)."""

    def __init__(self) -> None:
        super().__init__(msgspec.msgpack.Decoder(ChildMessage))
