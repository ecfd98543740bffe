"""Frames between processes: in order, whole, from whom they should be, or not at all."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import zmq

from tokenrouter.errors import ChannelError
from tokenrouter.ipc import channels
from tokenrouter.ipc.channels import HIGH_WATER_MARK, Inbox, Outbox
from tokenrouter.ipc.member_state import MemberState
from tokenrouter.ipc.messages import (
    PROTOCOL_VERSION,
    Abort,
    Admitted,
    Blocked,
    Close,
    Commit,
    Failed,
    Frame,
    Grammar,
    HandOver,
    Live,
    Logprob,
    Message,
    Open,
    Output,
    Route,
    Sampling,
    Submit,
    Text,
)
from tokenrouter.ipc.operations import Control, Controlled, Inspect, Plan, Planned
from tokenrouter.ipc.rank_calls import Admit, Feed, Release, Share, Truncate

pytestmark = pytest.mark.timeout(20)

Context = zmq.Context[zmq.Socket[bytes]]
ROUTE = Route("entropy", (0, 1), 0, 0.5, {"k": [1, 2.5]}, 7, 1, True)
SAMPLING = Sampling(
    16, 0.0, stop=("\n\n",), stop_token_ids=(3,), min_new_tokens=2, logit_bias={5: -1.5},
    seed=-9, grammar=Grammar("regex", "a+"), logprobs=3,
)  # fmt: skip
encode = msgspec.msgpack.encode
EVERY_KIND: list[Message] = [
    Submit(2**63, "rid", [1, 2, 3], SAMPLING, ROUTE, True),
    Abort(2**64 - 1),
    Inspect(7),
    Plan(3, [(1, 1), (1, 2)], "p = 0.35"),
    Planned(3, [(1, 1), (1, 2)], 2, 2, 1.115, "p = 0.35"),
    Control(8, "flush_cache", {}),
    Open(5, [1, 2], SAMPLING, ROUTE, True),
    HandOver(5, 3, 2, [9, 8], 1, b"\x00payload"),
    Commit(5, 3, 2, [9], [Logprob(-0.5, [(9, -0.5), (3, -1.5)])]),
    Close(5),
    Live(3, 4, 1000, 0.5),
    Blocked(5),
    Admitted(5),
    Failed(5, "out of memory", 503),
    Output(
        "rid",
        [4],
        [1, 2],
        {"type": "stop", "matched": 4},
        3,
        1,
        0,
        [1, 0],
        2,
        [0],
        True,
        True,
        False,
    ),
    Text("rid", "a", 1, [4], None, 3, 0, [1, 0], 2, [0]),
    MemberState(7, 1, 2, 1, 3, 2, 900, 1000, {1: 5, 4: 2}, 6.5, 0, 1, 2, {"stale": 1}),
    Controlled(8, 1, False, "2 requests are here", True),
    Admit(5, [1, 2]),
    Share(5, 2),
    Truncate(5, 1),
    Release(5),
    Feed([(5, [2]), (6, [3, 4])], 2**32 - 1),
]

OPEN = encode(Frame(PROTOCOL_VERSION, 0, 0, 4, 0, 0.0, [EVERY_KIND[0]]))
NESTED = OPEN.replace(b"\x81\xa1k\x92", b"\x81\xa1k" + b"\x91" * 100_000 + b"\x92")
"""Deeper than any decoder of ours goes."""

HEADED = bytes([0x97, PROTOCOL_VERSION])
MISNAMED = HEADED + b"\x00\x00\x04\x00\x00\x91\x92\xa5\xff\xfe\xfd\xfc\xfb\x05"
"""A message whose tag is no UTF-8."""


@pytest.fixture
def context() -> Iterator[Context]:
    """A ZeroMQ context; its sockets are closed by those who open them."""
    with zmq.Context() as context:
        yield context


@pytest.fixture
def address(tmp_path: Path) -> str:
    """Where the inbox of a test listens."""
    return f"ipc://{tmp_path / 'inbox.sock'}"


@pytest.fixture
def inbox(context: Context, address: str) -> Iterator[Inbox]:
    """An inbox for members 0 and 1, the second in its third life."""
    with closing(Inbox(context, address, senders={0: 0, 1: 2}, generation=4)) as inbox:
        yield inbox


@pytest.fixture
def open_outbox(context: Context, address: str) -> Iterator[Callable[..., Outbox]]:
    """Opens outboxes to the inbox: ``open_outbox(sender, generation, to_generation)``."""
    with ExitStack() as stack:

        def open_one(sender: int = 0, generation: int = 0, to_generation: int = 4) -> Outbox:
            outbox = Outbox(context, address, sender, generation, to_generation)
            return stack.enter_context(closing(outbox))

        yield open_one


@pytest.fixture
def raw(context: Context, address: str, inbox: Inbox) -> Iterator[Callable[..., None]]:
    """Sends bytes, or a frame with some fields changed, past every check of an outbox."""
    with context.socket(zmq.PUSH) as socket:
        socket.connect(address)

        def send(data: bytes | None = None, **changes: Any) -> None:
            frame = Frame(PROTOCOL_VERSION, 0, 0, 4, 0, 0.0, [Close(1)])
            socket.send(data or encode(msgspec.structs.replace(frame, **changes)))

        yield send


def receive(inbox: Inbox) -> list[tuple[int, Message]]:
    """What has arrived, after waiting for the first frame."""
    assert inbox.socket.poll(5000), "nothing arrived"
    return list(inbox.drain())


def test_every_message_arrives_as_it_was_sent(
    open_outbox: Callable[..., Outbox], inbox: Inbox
) -> None:
    outbox = open_outbox()
    for message in EVERY_KIND:
        outbox.post(message)
    outbox.flush()
    assert receive(inbox) == [(0, message) for message in EVERY_KIND]


def test_every_kind_of_message_is_tried() -> None:
    assert {type(message) for message in EVERY_KIND} == set(get_args(Message))


def test_one_frame_an_iteration_and_none_for_nothing(
    open_outbox: Callable[..., Outbox], inbox: Inbox
) -> None:
    outbox = open_outbox(sender=1, generation=2)
    outbox.flush()
    for uid in range(3):
        outbox.post(Close(uid))
        outbox.post(Abort(uid))
        outbox.flush()
        assert receive(inbox) == [(1, Close(uid)), (1, Abort(uid))]
    assert list(inbox.drain()) == []
    assert not inbox.dropped


def test_links_are_numbered_separately(open_outbox: Callable[..., Outbox], inbox: Inbox) -> None:
    boxes = [open_outbox(), open_outbox(sender=1, generation=2)]
    for outbox in (*boxes, *boxes):
        outbox.post(Close(1))
        outbox.flush()
        assert len(receive(inbox)) == 1


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("malformed", {"data": b"\xff not a frame"}),
        ("malformed", {"data": encode([PROTOCOL_VERSION, 2, 3])}),
        ("malformed", {"data": encode([PROTOCOL_VERSION, 0, 0, 4, 0, 0.0, [["close", "five"]]])}),
        ("malformed", {"data": encode([PROTOCOL_VERSION, 0, 0, 4, 0, 0.0, [["unheard-of", 5]]])}),
        (
            "malformed",
            {"data": MISNAMED},
        ),
        ("malformed", {"data": bytes([0xFF])}),
        ("malformed", {"data": NESTED}),
        ("version", {"version": PROTOCOL_VERSION + 1}),
        ("version", {"data": encode([1, 0, 0, 4, 0, [["close", 5]]])}),
        ("version", {"data": encode([PROTOCOL_VERSION + 1, "anything"])}),
        ("foreign", {"sender": 2}),
        ("foreign", {"sender": -1}),
        ("stale", {"generation": 1}),
        ("stale", {"to_generation": 3}),
        ("stale", {"sender": 1, "generation": 1}),
    ],
)
def test_what_does_not_belong_is_counted_and_dropped(
    raw: Callable[..., None], inbox: Inbox, kind: str, changes: dict[str, Any]
) -> None:
    raw(**changes)
    assert receive(inbox) == []
    assert inbox.dropped == {kind: 1}
    raw()
    assert receive(inbox) == [(0, Close(1))], "the link still works"


def test_a_duplicate_is_dropped(raw: Callable[..., None], inbox: Inbox) -> None:
    raw(sequence=0)
    assert receive(inbox) == [(0, Close(1))]
    raw(sequence=0)
    assert receive(inbox) == []
    assert inbox.dropped == {"duplicate": 1}


def test_a_lost_frame_is_fatal(raw: Callable[..., None], inbox: Inbox) -> None:
    raw(sequence=0)
    assert receive(inbox) == [(0, Close(1))]
    raw(sequence=3)
    with pytest.raises(ChannelError, match=r"frames 1\.\.2 of sender 0 were lost"):
        receive(inbox)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames may have 1,000 bytes."""
    monkeypatch.setattr(channels, "MAX_FRAME_BYTES", 1000)
    monkeypatch.setattr(channels, "HANG_UP_BYTES", 2000)


@pytest.mark.usefixtures("small")
def test_an_oversized_frame_is_dropped(raw: Callable[..., None], inbox: Inbox) -> None:
    raw(encode(list(range(600))))
    assert receive(inbox) == []
    assert inbox.dropped == {"oversized": 1}
    raw()
    assert receive(inbox) == [(0, Close(1))], "the link still works"


@pytest.mark.usefixtures("small")
def test_a_far_oversized_frame_is_not_even_read(
    context: Context, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "MAX_FRAME_BYTES", 1_000_000)
    with (
        closing(Inbox(context, address, senders={0: 0})) as inbox,
        closing(Outbox(context, address, 0)) as outbox,
    ):
        outbox.post(Commit(1, 0, 0, list(range(2000))))
        outbox.flush()
        # The receiving socket hangs up on it; the next frame that arrives tells.
        while not inbox.socket.poll(50):
            outbox.post(Close(1))
            outbox.flush()
        with pytest.raises(ChannelError, match=r"frames 0\.\.\d+ of sender 0 were lost"):
            receive(inbox)


def test_a_flood_is_drained_in_portions(
    raw: Callable[..., None], inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "HIGH_WATER_MARK", 10)
    for _ in range(25):
        raw(b"flood")
    time.sleep(0.2)  # so that more than a portion is there
    counts = [0]
    while counts[-1] < 25:
        assert receive(inbox) == []
        counts.append(inbox.dropped["malformed"])
    portions = [after - before for before, after in itertools.pairwise(counts)]
    assert max(portions) == 10


def test_an_oversized_frame_is_refused_by_its_sender(
    open_outbox: Callable[..., Outbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "MAX_FRAME_BYTES", 1000)
    outbox = open_outbox()
    outbox.post(Commit(1, 0, 0, list(range(2000))))
    with pytest.raises(ChannelError, match="the limit is 1000"):
        outbox.flush()
    outbox.post(Close(1))
    outbox.flush()  # the large one is gone, and with it what was wrong


def test_a_receiver_that_stops_reading_fails_its_sender(
    open_outbox: Callable[..., Outbox],
) -> None:
    outbox = open_outbox()
    for uid in range(HIGH_WATER_MARK):
        outbox.post(Close(uid))
        outbox.flush()
    outbox.post(Close(0))
    with pytest.raises(ChannelError, match="is full"):
        outbox.flush()


def test_what_cannot_be_encoded_harms_nothing_else(
    context: Context, address: str, open_outbox: Callable[..., Outbox]
) -> None:
    outbox = open_outbox(to_generation=0)
    with closing(Inbox(context, address, senders={0: 0})) as inbox:
        outbox.post(Close(1))
        with pytest.raises(ChannelError, match="serialize"):
            outbox.post(Close(2**70))
        with pytest.raises(ChannelError, match="surrogates"):
            outbox.post(Failed(1, "\ud800", 500))
        outbox.post(Close(2))
        outbox.flush()
        assert inbox.socket.poll(1000)
        assert [message for _, message in receive(inbox)] == [Close(1), Close(2)]
