"""The link between the supervisor and each process it watches.

A UNIX stream socket; a message is a 4-byte little-endian length and a msgpack array.

child -> supervisor:  Hello, MemberReady (members) or Ready (others), StartupFailed, Serving
supervisor -> child:  Roster, once every process is ready
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

import msgspec

from tokenrouter.errors import StartupError

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


class Roster(msgspec.Struct, frozen=True, array_like=True, tag="roster"):
    """Every member of the deployment, in order: what each may hold, and its generation."""

    members: tuple[MemberReady, ...]
    generations: tuple[int, ...]

    @property
    def pool_tokens(self) -> int:
        """The smallest pool: what live requests must share."""
        return min(member.pool_tokens for member in self.members)

    @property
    def max_visits(self) -> int:
        """Requests that can be resident on every member at once."""
        return min(member.max_visits for member in self.members)


ChildMessage = Hello | MemberReady | Ready | StartupFailed | Serving
SupervisorMessage = Roster


class ChildLink:
    """The child's end: connects, says hello, reports, and waits for the roster."""

    def __init__(self, path: Path, name: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(os.fspath(path))
        self.send(Hello(name, os.getpid()))

    def send(self, message: ChildMessage) -> None:
        """Tell the supervisor."""
        self._socket.sendall(encode(message))

    def roster(self) -> Roster:
        """Wait until every process is ready.

        Raises:
            StartupError: the supervisor went away first.
        """
        header = self._read(4)
        return msgspec.msgpack.decode(self._read(struct.unpack("<I", header)[0]), type=Roster)

    def _read(self, count: int) -> bytes:
        parts = b""
        while len(parts) < count:
            part = self._socket.recv(count - len(parts))
            if not part:
                raise StartupError("the supervisor closed the link before start-up finished")
            parts += part
        return parts


def encode(message: ChildMessage | SupervisorMessage) -> bytes:
    """A length-prefixed message."""
    data = msgspec.msgpack.encode(message)
    return struct.pack("<I", len(data)) + data


class StreamDecoder:
    """Cuts a child's byte stream into messages (the supervisor's side)."""

    def __init__(self) -> None:
        self._buffer = b""
        self._decoder = msgspec.msgpack.Decoder(ChildMessage)

    def feed(self, data: bytes) -> list[ChildMessage]:
        """The messages that ``data`` completes.

        Raises:
            StartupError: the stream is not ours (bad length or content).
        """
        self._buffer += data
        messages: list[ChildMessage] = []
        while len(self._buffer) >= 4:
            length = struct.unpack("<I", self._buffer[:4])[0]
            if length > MAX_BYTES:
                raise StartupError(f"supervision link: a message of {length} bytes")
            if len(self._buffer) < 4 + length:
                break
            try:
                messages.append(self._decoder.decode(self._buffer[4 : 4 + length]))
            except msgspec.DecodeError as error:
                raise StartupError(f"supervision link: {error}") from error
            self._buffer = self._buffer[4 + length :]
        return messages
