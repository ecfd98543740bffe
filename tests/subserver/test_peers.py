"""A member's links over real sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
import zmq

from tests.subserver.builders import make_submit
from tokenrouter.errors import ChannelError
from tokenrouter.ipc.channels import Inbox, Outbox
from tokenrouter.ipc.messages import (
    FRONT_END,
    PROTOCOL_VERSION,
    Abort,
    Close,
    Commit,
    Frame,
    HandOver,
    Live,
    Output,
)
from tokenrouter.ipc.ports import Ports, choose_ports
from tokenrouter.subserver.peers import PeerLinks

GENERATIONS = (0, 3, 1)


class World:
    """Members' links, the front end's outbox to member 0, and the detokenizer."""

    def __init__(self, directory: Path, members: Sequence[int]) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.ports: Ports = choose_ports(directory, ["a", "b", "c"], {})
        self.detokenizer = Inbox(
            self.context, self.ports.detokenizer, dict(enumerate(GENERATIONS)), 0
        )
        self.links = {m: PeerLinks(self.context, self.ports, m, GENERATIONS) for m in members}
        self.sockets: list[zmq.Socket[bytes]] = []
        self.front_end = Outbox(self.context, self.ports.members[0].input, FRONT_END)

    def get(self, member: int, count: int = 1) -> list[tuple[int, object]]:
        """At least ``count`` messages of a member's links."""
        messages: list[tuple[int, object]] = []
        deadline = time.monotonic() + 5
        while len(messages) < count and time.monotonic() < deadline:
            messages += self.links[member].poll(0.5)
        return messages

    def raw(self, address: str) -> zmq.Socket[bytes]:
        """A socket that can send anything to an inbox."""
        socket = self.context.socket(zmq.PUSH)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(address)
        self.sockets.append(socket)
        return socket

    def close(self) -> None:
        # Last in, first out: each hands the wake-up of signals back to the one before.
        for links in reversed(self.links.values()):
            links.close()
        for end in (*self.sockets, self.front_end, self.detokenizer):
            end.close()
        self.context.term()


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """All three members, or those that the test is parametrised with."""
    world = World(tmp_path, getattr(request, "param", (0, 1, 2)))
    yield world
    world.close()


def output() -> Output:
    return Output("r1", [110], None, None, 3, 1, 0, [1, 0, 0], 0, None, True, True, False)


def test_messages_arrive_from_peers_and_from_the_front_end(world: World):
    world.links[1].post(0, Commit(1, 2, 3, [110]))
    world.links[1].flush()
    assert world.get(0) == [(1, Commit(1, 2, 3, [110]))]
    submit = make_submit(5)
    world.front_end.post(submit)
    world.front_end.flush()
    assert world.get(0) == [(FRONT_END, submit)]


@pytest.mark.parametrize("world", [(0, 1)], indirect=True)
def test_everything_for_one_peer_travels_in_one_frame_in_order(world: World):
    listener = world.context.socket(zmq.PULL)
    world.sockets.append(listener)
    listener.bind(world.ports.members[2].peer)
    messages = [HandOver(1, 2, 3, [4], 2, b"x"), Close(7), Live(1, 2, 3)]
    for message in messages:
        world.links[0].post(2, message)
        world.links[0].post(1, Close(9))
    world.links[0].flush()
    world.links[0].flush()
    assert listener.poll(5000)
    frame = msgspec.msgpack.decode(listener.recv(), type=Frame)
    assert frame == Frame(
        PROTOCOL_VERSION, 0, GENERATIONS[0], GENERATIONS[2], 0, frame.sent, messages
    )
    assert frame.sent > 0
    assert not listener.poll(50), "an empty flush sends nothing"
    assert world.get(1, 3) == [(0, Close(9))] * 3


def test_nothing_leaves_before_the_flush(world: World):
    world.links[1].post(0, Close(1))
    assert list(world.links[0].poll(0.05)) == []
    world.links[1].flush()
    assert world.get(0) == [(1, Close(1))]


def test_outputs_go_to_the_detokenizer_as_one_frame(world: World):
    world.links[1].emit([output(), output()])
    assert world.detokenizer.socket.poll(5000)
    assert list(world.detokenizer.drain()) == [(1, output())] * 2


def test_a_poll_waits_as_long_as_told(world: World):
    started = time.monotonic()
    assert list(world.links[0].poll(0.05)) == []
    assert time.monotonic() - started >= 0.045
    started = time.monotonic()
    assert list(world.links[0].poll(0.0)) == []
    assert time.monotonic() - started < 0.5


def test_a_poll_ends_with_the_first_message(world: World):
    world.front_end.post(Abort(1))
    world.front_end.flush()
    started = time.monotonic()
    assert list(world.links[0].poll(100.0)) == [(FRONT_END, Abort(1))]
    assert time.monotonic() - started < 10.0


def test_a_poll_without_limit_wakes_for_a_message(world: World):
    world.links[2].post(0, Close(4))
    world.links[2].flush()
    assert list(world.links[0].poll(None)) == [(2, Close(4))]


def test_bad_frames_are_counted_by_kind_and_not_applied(world: World):
    socket = world.raw(world.ports.members[0].peer)
    good = Frame(PROTOCOL_VERSION, 1, GENERATIONS[1], GENERATIONS[0], 0, 0.0, [Close(1)])
    frames = [
        good,
        good,
        msgspec.structs.replace(good, generation=2, sequence=1),
        msgspec.structs.replace(good, to_generation=5, sequence=1),
        msgspec.structs.replace(good, sender=FRONT_END, sequence=1),
        msgspec.structs.replace(good, sender=0, sequence=1),
        msgspec.structs.replace(good, version=99, sequence=1),
        msgspec.structs.replace(good, sequence=1, messages=[Close(2)]),
    ]
    socket.send(b"not a frame")
    for frame in frames:
        socket.send(msgspec.msgpack.encode(frame))
    assert world.get(0, 2) == [(1, Close(1)), (1, Close(2))]
    assert world.links[0].dropped() == {
        "malformed": 1,
        "duplicate": 1,
        "stale": 2,
        "foreign": 2,
        "version": 1,
    }
    assert world.links[1].dropped() == {}


def test_a_lost_frame_breaks_the_link(world: World):
    socket = world.raw(world.ports.members[0].peer)
    frame = Frame(PROTOCOL_VERSION, 1, GENERATIONS[1], GENERATIONS[0], 2, 0.0, [Close(1)])
    socket.send(msgspec.msgpack.encode(frame))
    with pytest.raises(ChannelError, match=r"frames 0\.\.1 of sender 1 were lost"):
        world.get(0)


def test_frames_of_the_front_end_are_counted_too(world: World):
    ports = world.ports.members[0]
    for address in (ports.input, ports.peer):
        world.raw(address).send(b"nonsense")
    deadline = time.monotonic() + 5
    while world.links[0].dropped() != {"malformed": 2} and time.monotonic() < deadline:
        assert list(world.links[0].poll(0.1)) == []
    assert world.links[0].dropped() == {"malformed": 2}
