"""The planner's links over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.subserver.test_peers import Supervisor
from tokenrouter.ipc import channels
from tokenrouter.ipc.channels import Inbox, Outbox
from tokenrouter.ipc.messages import DETOKENIZER, FRONT_END, PLANNER, SUPERVISOR, Close, Message
from tokenrouter.ipc.operations import Inspect, Planned
from tokenrouter.ipc.ports import choose_ports
from tokenrouter.ipc.supervision import Down, MemberReady, Roster, StreamDecoder, Stuck, Up
from tokenrouter.planner.process import open_links

READY = tuple(MemberReady(m, 1000, 64, 2048, 300, (), "") for m in range(2))
ROSTER = Roster(READY, (3, 4), {FRONT_END: 5, DETOKENIZER: 6, PLANNER: 7})
PLANNED = Planned(1, [(1, 1)], 1, 2, 1.0, "why")


class World:
    """The planner's links, and the other ends of all of them."""

    def __init__(self, directory: Path) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.sent: list[Outbox] = []
        self.ports = choose_ports(directory, ["a", "b"], {})
        self.supervisor = Supervisor(self.ports.supervisor)
        self.links = open_links(self.context, self.ports, ROSTER, self.supervisor.link(PLANNER))
        self.detokenizer = Inbox(self.context, self.ports.detokenizer, {PLANNER: 7}, 6)
        self.inboxes = [self.member_inbox(m, g) for m, g in enumerate(ROSTER.generations)]

    def member_inbox(self, member: int, generation: int) -> Inbox:
        return Inbox(self.context, self.ports.members[member].input, {PLANNER: 7}, generation)

    def send(self, process: int, message: Message) -> None:
        self.links.post(process, message)
        self.links.flush()

    def answer(self, member: int, generation: int) -> None:
        """Something that a member sends; what it is does not matter here."""
        outbox = Outbox(self.context, self.ports.planner, member, generation, 7)
        outbox.post(Close(generation))
        outbox.flush()
        self.sent.append(outbox)

    def close(self) -> None:
        self.links.close()
        for end in (*self.sent, *self.inboxes, self.detokenizer):
            end.close()
        self.supervisor.close()
        self.context.term()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def received(inbox: Inbox, wait_ms: int = 5000) -> list[object]:
    return [message for _, message in inbox.drain()] if inbox.socket.poll(wait_ms) else []


def test_it_speaks_with_members_and_to_operators(world: World) -> None:
    world.send(1, Inspect(9))
    world.send(DETOKENIZER, PLANNED)
    assert received(world.inboxes[1]) == [Inspect(9)]
    assert received(world.detokenizer) == [PLANNED]
    assert received(world.inboxes[0], 0) == []
    world.answer(0, 3)
    assert list(world.links.poll(5.0)) == [(0, Close(3))]


def test_a_member_that_died_is_told_nothing_until_it_is_back(world: World) -> None:
    world.supervisor.tell(PLANNER, Down(0))
    assert list(world.links.poll(5.0)) == [(SUPERVISOR, Down(0))]
    world.answer(0, 3)
    assert list(world.links.poll(0.05)) == [], "it is stale"
    world.send(0, Inspect(1))
    world.inboxes[0].close()
    world.inboxes[0] = world.member_inbox(0, 30)
    back = Up(0, 30, READY[0], 1)
    world.supervisor.tell(PLANNER, back)
    assert list(world.links.poll(5.0)) == [(SUPERVISOR, back)]
    world.send(0, Inspect(2))
    assert received(world.inboxes[0]) == [Inspect(2)]
    world.answer(0, 30)
    assert list(world.links.poll(5.0)) == [(0, Close(30))]


def test_a_new_detokenizer_is_told_again_and_the_front_end_is_no_link(world: World) -> None:
    news = [Down(FRONT_END), Up(FRONT_END, 50), Down(DETOKENIZER), Up(DETOKENIZER, 60)]
    world.detokenizer.close()
    world.detokenizer = Inbox(world.context, world.ports.detokenizer, {PLANNER: 7}, 60)
    world.supervisor.tell(PLANNER, *news)
    assert [message for _, message in world.links.poll(5.0)] == news
    world.send(DETOKENIZER, PLANNED)
    assert received(world.detokenizer) == [PLANNED]


def test_who_does_not_read_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "HIGH_WATER_MARK", 1)
    world.inboxes[0].close()
    world.supervisor.tell(PLANNER, Down(0), Up(0, 30, READY[0], 1))
    assert len(list(world.links.poll(5.0))) == 2
    for ticket in range(10):
        world.send(0, Inspect(ticket))
    heard = StreamDecoder().feed(world.supervisor.ends[PLANNER].recv(4096))[1:]
    assert heard == [Stuck(0, 30)]
