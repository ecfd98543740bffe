"""Links of a process over real sockets (a member's: `tests/subserver/test_peers.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.subserver.test_peers import Supervisor
from tokenrouter.ipc.channels import Inbox, Outbox
from tokenrouter.ipc.messages import DETOKENIZER, FRONT_END, PLANNER, SUPERVISOR, Close
from tokenrouter.ipc.process_links import ProcessLinks
from tokenrouter.ipc.supervision import Down, MemberReady, Roster, Up

ROSTER = Roster(
    (MemberReady(0, 1000, 64, 2048, 300, (), ""),), (3,), {FRONT_END: 5, DETOKENIZER: 6}
)


class World:
    """A detokenizer's links: a member and perhaps a planner in, the front end out."""

    def __init__(self, directory: Path) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.address, self.out = (f"ipc://{directory / each}" for each in ("in", "out"))
        self.supervisor = Supervisor(directory / "supervisor.sock")
        self.inbox = Inbox(self.context, self.out, {DETOKENIZER: 6}, 5)
        self.links = ProcessLinks(
            self.context,
            DETOKENIZER,
            ROSTER,
            self.supervisor.link(DETOKENIZER),
            {self.address: [0, PLANNER]},
            {FRONT_END: self.out, PLANNER: self.out},
        )
        self.outboxes: list[Outbox] = []

    def tell(self, sender: int, generation: int, number: int) -> None:
        outbox = Outbox(self.context, self.address, sender, generation, 6)
        outbox.post(Close(number))
        outbox.flush()
        self.outboxes.append(outbox)

    def heard(self, wait_ms: int) -> list[object]:
        """What the front end hears once it is told something."""
        self.links.post(FRONT_END, Close(1))
        self.links.flush()
        return list(self.inbox.drain()) if self.inbox.socket.poll(wait_ms) else []

    def close(self) -> None:
        self.links.close()
        for end in (*self.outboxes, self.inbox):
            end.close()
        self.supervisor.close()
        self.context.term()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_who_only_sends_is_only_heard(world: World) -> None:
    world.links.post(0, Close(1))
    world.tell(0, 3, 7)
    assert list(world.links.poll(5.0)) == [(0, Close(7))]
    back = Up(0, 30, ROSTER.members[0], 1)
    world.supervisor.tell(DETOKENIZER, Down(0), back)
    assert list(world.links.poll(5.0)) == [(SUPERVISOR, Down(0)), (SUPERVISOR, back)]
    world.tell(0, 30, 8)
    assert list(world.links.poll(5.0)) == [(0, Close(8))]


def test_who_only_receives_is_told_while_it_is_there(world: World) -> None:
    assert world.heard(5000) == [(DETOKENIZER, Close(1))]
    world.supervisor.tell(DETOKENIZER, Down(FRONT_END))
    assert list(world.links.poll(5.0)) == [(SUPERVISOR, Down(FRONT_END))]
    assert world.heard(50) == []
    world.inbox.close()
    world.inbox = Inbox(world.context, world.out, {DETOKENIZER: 6}, 50)
    world.supervisor.tell(DETOKENIZER, Up(FRONT_END, 50))
    assert len(list(world.links.poll(5.0))) == 1
    assert world.heard(5000) == [(DETOKENIZER, Close(1))]


def test_a_planner_that_the_roster_lacks_is_a_stranger(world: World) -> None:
    world.links.post(PLANNER, Close(1))
    world.links.flush()
    assert not world.inbox.socket.poll(50)
    world.tell(PLANNER, 0, 7)
    assert list(world.links.poll(5.0)) == []
