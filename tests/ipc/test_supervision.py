"""The link to the supervisor: whole messages out of a stream, and refusals of anything else."""

from __future__ import annotations

import os
import select
import socket
import struct
from pathlib import Path

import pytest

from tokenrouter.errors import StartupError
from tokenrouter.ipc.supervision import (
    MAX_BYTES,
    ChildLink,
    Down,
    Hello,
    MemberReady,
    Ping,
    Pong,
    Ready,
    Roster,
    Serving,
    StartupFailed,
    StreamDecoder,
    encode,
)

pytestmark = pytest.mark.timeout(10)

MEMBERS = (
    MemberReady(0, 1000, 64, 2048, 151936, (1, 2), "vocabulary"),
    MemberReady(1, 500, 128, 4096, 152064, (2,), ""),
)
MESSAGES = [Hello("small", 12), *MEMBERS, Ready(), Serving("http://x:1"), StartupFailed("why")]


@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_messages_survive_any_cut_of_the_stream(size: int) -> None:
    stream = b"".join(encode(message) for message in MESSAGES)
    decoder = StreamDecoder()
    found = []
    for start in range(0, len(stream), size):
        found += decoder.feed(stream[start : start + size])
    assert found == MESSAGES


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<I", MAX_BYTES + 1),
        struct.pack("<I", 3) + b"\xc1\xc1\xc1",
        encode(Roster((), ())),
    ],
)
def test_a_stream_that_is_not_ours_is_refused(data: bytes) -> None:
    with pytest.raises(StartupError, match="supervision link"):
        StreamDecoder().feed(data)


def test_a_child_says_hello_and_waits_for_the_roster(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.sock"
    roster = Roster(MEMBERS, (0, 3))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        listener.listen()
        link = ChildLink(path, "small")
        connection, _ = listener.accept()
        link.send(Ready())
        assert StreamDecoder().feed(connection.recv(4096)) == [Hello("small", os.getpid()), Ready()]
        connection.sendall(encode(roster) + encode(Down(1)) + encode(Ping(9)))
        assert link.roster() == roster
        assert select.select([link], [], [], 0)[0], "what came with the roster waits for a poller"
        assert link.receive() == [Down(1)]
        assert StreamDecoder().feed(connection.recv(4096)) == [Pong(9)]
        assert link.receive() == []
        connection.close()
        with pytest.raises(StartupError, match="supervisor closed the link"):
            link.roster()
        link._socket.close()  # a process keeps its link for life; a test does not


def test_the_roster_knows_what_all_members_can_hold() -> None:
    roster = Roster(MEMBERS, (0, 0))
    assert (roster.pool_tokens, roster.max_visits) == (500, 64)
