"""Frames that nobody should send: made up, mutated, nested, of other versions, of strangers."""

from __future__ import annotations

import os
import pickle
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import zmq

from tests.ipc.test_channels import EVERY_KIND, NESTED
from tokenrouter.ipc.messages import PROTOCOL_VERSION, Frame
from tokenrouter.ipc.supervision import Hello, Pong, Ready, StartupFailed, encode

SENDERS = range(-3, 3)


def bad_frames(rng: random.Random, count: int) -> Iterator[bytes]:
    """``count`` of them. None can pass: a stranger cannot know the generations."""
    whole = [_frame(rng) for _ in range(50)]
    whole += [NESTED, b"", pickle.dumps(os.getpid), msgspec.msgpack.encode([3, "later"])]
    for _ in range(count):
        data = bytearray(rng.choice(whole))
        for _ in range(rng.choice((0, 0, 1, 2, 8))):
            _mutate(data, rng)
        yield bytes(data)


def _frame(rng: random.Random) -> bytes:
    generations = rng.getrandbits(62), rng.getrandbits(62)
    messages = rng.choices(EVERY_KIND, k=rng.randint(0, 4))
    head = PROTOCOL_VERSION, rng.choice(SENDERS), *generations, rng.getrandbits(8), rng.random()
    return msgspec.msgpack.encode(Frame(*head, messages))


def _mutate(data: bytearray, rng: random.Random) -> None:
    place = rng.randrange(len(data) + 1)
    match rng.randrange(4):
        case 0:
            del data[place : place + rng.randint(1, 40)]
        case 1:
            data[place:place] = rng.randbytes(rng.randint(1, 8))
        case 2:
            data[place : place + 1] = bytes([rng.randrange(256)])
        case 3:
            data += data[place:]


def send_all(path: Path, frames: Iterator[bytes]) -> None:
    """As ZeroMQ messages, through a socket of its own, to whoever listens at ``path``."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as link:
        link.connect(f"ipc://{path}")
        link.setsockopt(zmq.SNDTIMEO, 10_000)
        link.setsockopt(zmq.LINGER, 10_000)
        for data in frames:
            link.send(data)


def send_raw(path: Path, rng: random.Random) -> None:
    """Bytes that are no ZeroMQ at all, on several connections, some left in the middle."""
    for size in (0, 1, 10, 64, 1000, 100_000):
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(5)
            try:
                link.connect(os.fspath(path))
                link.sendall(rng.randbytes(size))
            except (BrokenPipeError, ConnectionResetError, BlockingIOError):
                continue  # it has hung up, or too many want to be heard


def lie_to_supervisor(path: Path, name: str, rng: random.Random) -> None:
    """What a stranger may tell the supervisor, above all in the name of a child."""
    hello = encode(Hello(name, os.getpid()))
    for data in (
        rng.randbytes(100),
        struct.pack("<I", 2**31) + b"x",
        struct.pack("<I", 10) + b"x" * 10,
        hello + encode(StartupFailed("a lie")),
        hello + encode(Ready()) + encode(Pong(5)),
        hello * 1000,
    ):
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(5)
            try:
                link.connect(os.fspath(path))
                link.sendall(data)
                assert not link.recv(100), "the supervisor answers a stranger"
            except (BrokenPipeError, ConnectionResetError, BlockingIOError):
                continue  # it has hung up, or too many want to be heard
