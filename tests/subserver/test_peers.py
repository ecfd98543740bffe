"""A member's links over real sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
import zmq

from tests.subserver.builders import make_submit
from tokenrouter.errors import ChannelError
from tokenrouter.ipc import channels
from tokenrouter.ipc.channels import Inbox, Outbox
from tokenrouter.ipc.messages import (
    DETOKENIZER,
    FRONT_END,
    PLANNER,
    PROTOCOL_VERSION,
    SUPERVISOR,
    Abort,
    Close,
    Commit,
    Frame,
    HandOver,
    Live,
    Output,
)
from tokenrouter.ipc.operations import Plan
from tokenrouter.ipc.ports import Ports, choose_ports
from tokenrouter.ipc.supervision import (
    ChildLink,
    Down,
    MemberReady,
    Ping,
    Pong,
    Roster,
    StreamDecoder,
    Stuck,
    SupervisorMessage,
    Up,
    encode,
)
from tokenrouter.subserver.peers import PeerLinks

GENERATIONS = (0, 3, 1)
ROSTER = Roster(
    tuple(MemberReady(m, 1000, 64, 2048, 300, (), "") for m in range(3)), GENERATIONS, {PLANNER: 6}
)


class Supervisor:
    """The other ends of the members' links to it."""

    def __init__(self, path: Path) -> None:
        self.ends: dict[int, socket.socket] = {}
        self.children: list[ChildLink] = []
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()

    def link(self, member: int) -> ChildLink:
        child = ChildLink(self._path, str(member))
        self.children.append(child)
        self.ends[member], _ = self._listener.accept()
        return child

    def tell(self, member: int, *messages: SupervisorMessage) -> None:
        self.ends[member].sendall(b"".join(map(encode, messages)))

    def close(self) -> None:
        for each in (self._listener, *self.ends.values(), *(c._socket for c in self.children)):
            each.close()


class World:
    """Members' links, the front end's outbox to member 0, and the detokenizer."""

    def __init__(self, directory: Path, members: Sequence[int]) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.ports: Ports = choose_ports(directory, ["a", "b", "c"], {})
        self.detokenizer = Inbox(
            self.context, self.ports.detokenizer, dict(enumerate(GENERATIONS)), 0
        )
        self.supervisor = Supervisor(self.ports.supervisor)
        self.links = {
            m: PeerLinks(self.context, self.ports, m, ROSTER, self.supervisor.link(m))
            for m in members
        }
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
        self.supervisor.close()
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


def test_a_ping_is_answered_by_whoever_polls(world: World):
    world.supervisor.tell(0, Ping(7))
    assert list(world.links[0].poll(None)) == []
    decoder = StreamDecoder()
    heard = decoder.feed(world.supervisor.ends[0].recv(4096))[1:]
    assert heard == [Pong(7)]


def test_a_peer_that_is_down_gets_nothing_and_is_not_heard(world: World):
    world.links[1].post(0, Close(1))
    world.links[1].flush()
    time.sleep(0.05)
    world.supervisor.tell(0, Down(1))
    # Whatever it had sent, its death comes first.
    assert world.get(0) == [(SUPERVISOR, Down(1))]
    while not (dropped := world.links[0].dropped()):
        assert list(world.links[0].poll(0.05)) == []
    assert dropped == {"stale": 1}
    for _ in range(10_000):
        world.links[0].post(1, Close(2))
    world.links[0].flush()


@pytest.mark.parametrize("world", [(0, 2)], indirect=True)
def test_a_peer_that_is_back_counts_from_the_start(world: World):
    """Its first frame may be there when the news is read: the news counts first."""
    world.links[0].post(1, Close(1))
    world.links[0].flush()
    world.supervisor.tell(0, Down(1))
    assert world.get(0) == [(SUPERVISOR, Down(1))]
    ready = ROSTER.members[1]
    back = Up(1, 77, ready, 1)
    for m in (0, 2):
        world.supervisor.tell(m, back)
    roster = ROSTER.after(back)
    world.links[1] = PeerLinks(world.context, world.ports, 1, roster, world.supervisor.link(1))
    for number in range(3):
        world.links[1].post(0, Close(number))
        world.links[1].flush()
    time.sleep(0.05)
    assert world.get(0, 4) == [(SUPERVISOR, back), *((1, Close(number)) for number in range(3))]
    world.links[0].post(1, Close(9))
    world.links[0].flush()
    assert world.get(1) == [(0, Close(9))]


def test_a_new_front_end_and_a_new_detokenizer(world: World):
    world.supervisor.tell(0, Down(FRONT_END), Up(FRONT_END, 5), Down(DETOKENIZER))
    assert [message for _, message in world.get(0, 3)] == [
        Down(FRONT_END), Up(FRONT_END, 5), Down(DETOKENIZER),
    ]  # fmt: skip
    world.front_end.post(Abort(1))
    world.front_end.flush()
    new = Outbox(world.context, world.ports.members[0].input, FRONT_END, 5)
    world.sockets.append(new._socket)
    new.post(Abort(2))
    new.flush()
    assert world.get(0) == [(FRONT_END, Abort(2))]
    world.links[0].emit([output()])
    assert not world.detokenizer.socket.poll(50), "it was told something while it was down"
    world.detokenizer.close()
    world.detokenizer = Inbox(
        world.context, world.ports.detokenizer, dict(enumerate(GENERATIONS)), 9
    )
    world.supervisor.tell(0, Up(DETOKENIZER, 9))
    assert world.get(0) == [(SUPERVISOR, Up(DETOKENIZER, 9))]
    world.links[0].emit([output()])
    assert world.detokenizer.socket.poll(5000)
    assert list(world.detokenizer.drain()) == [(0, output())]


def test_the_planner_is_heard_and_answered_and_may_be_replaced(world: World) -> None:
    plan = Plan(1, [(1, 1, 1)], "why")
    for generation in (6, 8):
        inbox = Inbox(world.context, world.ports.planner, {0: GENERATIONS[0]}, generation)
        outbox = Outbox(world.context, world.ports.members[0].input, PLANNER, generation)
        outbox.post(plan)
        outbox.flush()
        assert world.get(0) == [(PLANNER, plan)]
        world.links[0].post(PLANNER, Close(1))
        world.links[0].flush()
        assert inbox.socket.poll(5000)
        assert list(inbox.drain()) == [(0, Close(1))]
        outbox.close()
        inbox.close()
        if generation == 6:
            world.supervisor.tell(0, Down(PLANNER), Up(PLANNER, 8))
            assert len(world.get(0, 2)) == 2


def test_without_a_supervisor_a_member_ends(world: World):
    world.supervisor.ends[0].close()
    with pytest.raises(ChannelError, match="supervisor is gone"):
        world.get(0)


@pytest.mark.parametrize("world", [(0,)], indirect=True)
def test_a_peer_that_has_stopped_reading_is_reported_and_nothing_waits_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "HIGH_WATER_MARK", 1)
    world.supervisor.tell(0, Down(1), Up(1, 8, ROSTER.members[1], 1), Down(DETOKENIZER))
    world.supervisor.tell(0, Up(DETOKENIZER, 9))
    world.get(0, 4)
    world.detokenizer.close()
    for _ in range(20):
        world.links[0].post(1, Close(1))
        world.links[0].emit([output()])
        world.links[0].flush()
    heard = StreamDecoder().feed(world.supervisor.ends[0].recv(4096))[1:]
    assert set(heard) == {Stuck(1, 8), Stuck(DETOKENIZER, 9)}
