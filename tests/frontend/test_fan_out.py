"""Each request reaches its own home, with an id that orders it by age."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.frontend.fakes import NAMES, make_roster
from tokenrouter.errors import MemberDeadError
from tokenrouter.frontend.fan_out import FanOut
from tokenrouter.ipc import channels
from tokenrouter.ipc.channels import Inbox
from tokenrouter.ipc.messages import FRONT_END, Abort, Message, Route, Sampling, Submit
from tokenrouter.ipc.operations import Inspect
from tokenrouter.ipc.ports import Ports, choose_ports
from tokenrouter.ipc.supervision import Up

SAMPLING = Sampling(max_new_tokens=5)


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield context
    context.destroy(0)


@pytest.fixture
def ports(tmp_path: Path) -> Ports:
    return choose_ports(tmp_path, NAMES, {})


def receive(inbox: Inbox) -> list[Message]:
    assert inbox.socket.poll(2000)
    return [message for sender, message in inbox.drain() if sender == FRONT_END]


def route(home: int) -> Route:
    return Route("single", (home,), home)


def test_messages_go_to_the_home_alone(
    context: zmq.Context[zmq.Socket[bytes]], ports: Ports
) -> None:
    inboxes = [Inbox(context, member.input, {FRONT_END: 0}) for member in ports.members]
    fan_out = FanOut(context, ports, make_roster())
    uid = fan_out.submit("a", (1, 2), SAMPLING, route(1), stream=True)
    assert receive(inboxes[1]) == [Submit(uid, "a", [1, 2], SAMPLING, route(1), True)]
    fan_out.abort(uid, 1)
    assert receive(inboxes[1]) == [Abort(uid)]
    assert not inboxes[0].socket.poll(50)
    fan_out.ask(0, Inspect(3))
    assert receive(inboxes[0]) == [Inspect(3)]
    fan_out.close()
    for inbox in inboxes:
        inbox.close()


def test_ids_grow_with_age_also_across_restarts(
    context: zmq.Context[zmq.Socket[bytes]], ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns()
    uids = []
    for start in range(2):
        monkeypatch.setattr(time, "time_ns", lambda now=now, start=start: now + 1000 * start)
        fan_out = FanOut(context, ports, make_roster())
        uids += [fan_out.submit("a", [1], SAMPLING, route(0), False) for _ in range(3)]
        fan_out.close()
    assert uids == sorted(set(uids))
    assert uids[-1] < 2**63


def test_a_home_that_stopped_reading_is_an_error_of_the_request(
    context: zmq.Context[zmq.Socket[bytes]], ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "HIGH_WATER_MARK", 1)
    fan_out = FanOut(context, ports, make_roster())
    uid = fan_out.submit("a", [1], SAMPLING, route(0), False)
    for _ in range(100):
        with pytest.raises(MemberDeadError, match="stopped answering"):
            fan_out.submit("b", [1], SAMPLING, route(0), False)
        fan_out.ask(0, Inspect(0))
    fan_out.abort(uid, 0)
    # It reads again: of what was refused, nothing has waited; the abort has.
    inbox = Inbox(context, ports.members[0].input, {FRONT_END: 0})
    first = receive(inbox)
    for _ in range(100):
        fan_out.ask(0, Inspect(1))
        if inbox.socket.poll(20):
            break
    later = receive(inbox)
    fan_out.close()
    inbox.close()
    assert [type(message) for message in first] == [Submit]
    assert later[:2] == [Abort(uid), Inspect(1)]


def test_a_member_that_is_down_is_told_nothing_and_one_that_is_back_everything(
    context: zmq.Context[zmq.Socket[bytes]], ports: Ports
) -> None:
    roster = make_roster()
    fan_out = FanOut(context, ports, roster)
    fan_out.lost(1)
    fan_out.abort(3, 1)
    fan_out.ask(1, Inspect(0))
    with pytest.raises(MemberDeadError, match="being restarted"):
        fan_out.submit("a", [1], SAMPLING, route(1), False)
    fan_out.returned(Up(1, 8, roster.members[1], 1))
    inbox = Inbox(context, ports.members[1].input, {FRONT_END: 0}, 8)
    uid = fan_out.submit("b", [1], SAMPLING, route(1), False)
    assert receive(inbox) == [Submit(uid, "b", [1], SAMPLING, route(1), False)]
    fan_out.close()
    inbox.close()
