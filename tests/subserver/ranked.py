"""Timed engines as the ranks of one member, in one process: what rank 0 does, two others repeat."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from tests.subserver.engines import PrefixCache
from tokenrouter.ipc.messages import Message
from tokenrouter.schedulers.signals import Signal
from tokenrouter.subserver.engine import Meanwhile, StepBatch, Visit, Work, nothing, to_check
from tokenrouter.subserver.ranks import LeadingEngine, Mirror

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class Rank(PrefixCache):
    """One rank: a step leaves a mark of every row it fed in the digest."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.mark = 0

    def step(
        self, work: Sequence[Work], signals: Sequence[Signal], meanwhile: Meanwhile = nothing
    ) -> StepBatch:
        self._count(work, to_check(work))
        return super().step(work, signals, meanwhile)

    def replay(self, work: Sequence[Work], checked: Sequence[int] = ()) -> None:
        self._count(work, checked)
        for visit, n in work:
            self._feed(visit, n)
            self._used += n

    def digest(self) -> int:
        return self.mark

    def _count(self, work: Sequence[Work], checked: Sequence[int]) -> None:
        rows = [(v.computed, v.tokens[v.computed : v.computed + n], v.handle[-1]) for v, n in work]
        self.mark = zlib.crc32(repr((rows, list(checked))).encode(), self.mark)


class MemoryOutbox:
    """A link to a mirror in this process: a frame is applied as soon as it is sent."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.posted: list[bytes] = []
        self.frames: list[list[Message]] = []

    def post(self, message: Message) -> None:
        self.posted.append(_ENCODER.encode(message))

    def flush(self) -> None:
        if self.posted:
            posted, self.posted = self.posted, []
            self.frames.append([_DECODER.decode(each) for each in posted])
            for each in posted:
                self.mirror.apply(_DECODER.decode(each))


class Ranked(LeadingEngine):
    """A member of three ranks; made as a timed engine is."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.leader = Rank(*args, **options)
        self.followers = [Rank(*args, **options) for _ in range(2)]
        self.outboxes = [MemoryOutbox(Mirror(each)) for each in self.followers]
        super().__init__(self.leader, self.outboxes)  # type: ignore[arg-type]

    @property
    def visits(self) -> int:
        return self.leader.visits

    def assert_equal(self) -> None:
        """Once everything has been sent, every rank is as the first."""
        self._flush()
        for follower in self.followers:
            assert follower.visits == self.leader.visits
            assert follower.free_tokens() == self.leader.free_tokens()
            assert follower.digest() == self.leader.digest()
            assert follower._seen == self.leader._seen


def resident(*tokens: int, computed: int = 0, uid: int = 1) -> Visit:
    """A visit as the loop has it."""
    from tests.subserver.sglang_compat.driver import GREEDY
    from tokenrouter.ipc.messages import Route

    visit = Visit(uid, 0, len(tokens), list(tokens), GREEDY, Route("single", (0,), 0), True, False)
    visit.computed = computed
    return visit
