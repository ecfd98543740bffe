"""What the supervisor and the zygote tell each other.

supervisor -> zygote:  Launch (once), Start, Signal, Probe
zygote -> supervisor:  Prepared, Forked, Exited, PrepareFailed, Alive

Over an inherited SOCK_SEQPACKET pair: one message a packet.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgspec

from tokenrouter.ipc.ports import Ports

MAX_BYTES = 1024 * 1024


class ChildSpec(msgspec.Struct, frozen=True):
    """One process to start: calls ``entry`` ("module:function").

    ``rank`` is the tensor-parallel rank; the ranks of a member start, die and restart
    together. A member's call is ``entry(config, ports, member, cores, link)``, with its index and
    its cores (empty: not pinned), that of another rank than the first
    ``entry(config, ports, member, rank, cores, link)``, and any other's
    ``entry(config, ports, link)``. Those of a ``wave`` start when all of earlier ones are ready.
    """

    name: str
    entry: str
    member: int | None = None
    cores: tuple[int, ...] = ()
    rank: int = 0
    wave: int = 0


class Launch(msgspec.Struct, frozen=True, tag="launch"):
    """Fork the first wave of ``children``. ``config`` is a `Config` as JSON.

    ``prepare`` ("module:function", called with the configuration) imports what children
    need: once and before the fork if ``shared``, together with their entries; else in
    each child.
    """

    config: str
    ports: Ports
    children: tuple[ChildSpec, ...]
    prepare: str
    shared: bool


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Fork ``children``: those of a later wave, or again some that have exited.

    ``ports``: where members listen from now on; None: where they did.
    """

    children: tuple[ChildSpec, ...]
    ports: Ports | None = None


class Signal(msgspec.Struct, frozen=True, tag="signal"):
    """Send signal ``number`` to the children ``names`` that are alive; None: to all."""

    number: int
    names: tuple[str, ...] | None = None


class Probe(msgspec.Struct, frozen=True, tag="probe"):
    """Asks for a sign of life, an `Alive`."""

    number: int


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    """Ready to fork after ``seconds`` of imports; ``threads`` are running."""

    seconds: float
    threads: tuple[str, ...]


class Forked(msgspec.Struct, frozen=True, tag="forked"):
    """A child started."""

    name: str
    pid: int


class Exited(msgspec.Struct, frozen=True, tag="exited"):
    """A child ended. ``status``: as `os.waitstatus_to_exitcode` gives it."""

    name: str
    pid: int
    status: int


class PrepareFailed(msgspec.Struct, frozen=True, tag="prepare_failed"):
    """The imports failed, and why; nothing is forked."""

    reason: str


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """The answer to the `Probe` with this number."""

    number: int


ToZygote = Launch | Start | Signal | Probe
FromZygote = Prepared | Forked | Exited | PrepareFailed | Alive


def send(channel: socket.socket, message: ToZygote | FromZygote) -> None:
    """Send one message, whole.

    Raises:
        OSError: the other end is gone.
    """
    channel.send(msgspec.msgpack.encode(message, enc_hook=_encode_path))


def receive_order(channel: socket.socket) -> ToZygote | None:
    """The supervisor's next message; None: the supervisor is gone."""
    data = channel.recv(MAX_BYTES)
    return msgspec.msgpack.decode(data, type=ToZygote, dec_hook=_decode_path) if data else None


def receive_report(channel: socket.socket) -> FromZygote | None:
    """The zygote's next message; None: the zygote is gone."""
    try:
        data = channel.recv(MAX_BYTES)
    except ConnectionResetError:
        return None
    return msgspec.msgpack.decode(data, type=FromZygote) if data else None


def _encode_path(value: Any) -> str:
    return str(value)


def _decode_path(kind: type, value: Any) -> Any:
    if kind is not Path:
        raise TypeError(f"cannot decode {kind}")
    return Path(value)
