"""A whole deployment in one thread: real loops, timed engines, links with random delays.

Time is a counter: each turn either delivers one frame or runs one iteration of a member,
chosen at random, so that every order of events that the links allow can happen. A state
in which nothing can happen while requests are unfinished is a stall.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tokenrouter.ipc.messages import FRONT_END, Abort, MemberState, Message, Output, Route, Sampling, Submit
from tokenrouter.ipc.supervision import MemberReady, Roster
from tokenrouter.subserver.batching import Limits, Rules
from tokenrouter.subserver.loop import Subserver
from tokenrouter.subserver.timed import TimedEngine

ALPHABET = tuple(range(100, 200))
EOS = 199


class Stall(AssertionError):
    """Requests are unfinished and nothing is outstanding."""


@dataclass
class MemoryLinks:
    """One member's links: outgoing frames queue per receiver, incoming ones in ``inbox``."""

    member: int
    deployment: Deployment
    inbox: deque[tuple[int, Message]] = field(default_factory=deque)
    posted: dict[int, list[Message]] = field(default_factory=dict)

    def poll(self, timeout: float | None) -> Iterable[tuple[int, Message]]:
        while self.inbox:
            yield self.inbox.popleft()

    def post(self, member: int, message: Message) -> None:
        # Through the wire format, so that nothing is shared by reference.
        copy = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=Message)
        self.posted.setdefault(member, []).append(copy)

    def flush(self) -> None:
        for member, messages in self.posted.items():
            self.deployment.wires[self.member, member].append(messages)
        self.posted = {}

    def emit(self, outputs: Sequence[Output | MemberState]) -> None:
        for output in outputs:
            assert isinstance(output, Output)
            self.deployment.collect(output)

    def dropped(self) -> dict[str, int]:
        return {}


@dataclass
class Answer:
    tokens: list[int] = field(default_factory=list)
    models: list[int] = field(default_factory=list)
    finish: dict[str, Any] | None = None
    hand_overs: int = 0
    member_tokens: list[int] = field(default_factory=list)


class Deployment:
    """``thresholds`` has one entry per member; see `submit` and `run`."""

    def __init__(
        self,
        thresholds: Sequence[int],
        *,
        pools: Sequence[int] | int = 100_000,
        max_visits: int = 512,
        limits: Limits = Limits(256, 512),
        eager: bool = False,
        seed: int = 0,
        engine: type[TimedEngine] = TimedEngine,
        eos_ids: Sequence[int] = (EOS,),
    ) -> None:
        count = len(thresholds)
        pools = [pools] * count if isinstance(pools, int) else list(pools)
        self.rng = random.Random(seed)
        self.now = 0.0
        self.names = [f"m{i}" for i in range(count)]
        self.wires: dict[tuple[int, int], deque[list[Message]]] = {
            (a, b): deque() for a in range(count) for b in range(count) if a != b
        }
        ready = tuple(
            MemberReady(m, pools[m], max_visits, 100_000, 200, tuple(eos_ids), "")
            for m in range(count)
        )
        roster = Roster(ready, (0,) * count)
        self.links = [MemoryLinks(m, self) for m in range(count)]
        self.engines = [
            engine(lambda b: 0.0, ALPHABET, pools[m], max_visits, seed=m, sleep=lambda s: None)
            for m in range(count)
        ]
        self.members = [
            Subserver(
                m, self.names, roster, self.engines[m], self.links[m],
                Rules(tuple(thresholds), limits, max_wait=1e9),
                decode=lambda ids: "".join(chr(i) for i in ids),
                eager=eager, clock=lambda: self.now,
            )
            for m in range(count)
        ]  # fmt: skip
        self.answers: dict[str, Answer] = {}

    def submit(
        self,
        uid: int,
        prompt: Sequence[int],
        route: Route,
        sampling: Sampling,
        stream: bool = True,
    ) -> None:
        self.answers[str(uid)] = Answer()
        message = Submit(uid, str(uid), list(prompt), sampling, route, stream)
        self.links[route.home].inbox.append((FRONT_END, message))

    def abort(self, uid: int, home: int) -> None:
        self.links[home].inbox.append((FRONT_END, Abort(uid)))

    def collect(self, output: Output) -> None:
        answer = self.answers[output.rid]
        assert answer.finish is None, "output after the finish"
        answer.tokens += output.tokens
        answer.models += output.token_models or []
        answer.finish = output.finish
        answer.hand_overs = output.hand_overs
        answer.member_tokens = output.member_tokens
        assert output.completion_tokens == len(answer.tokens) or output.completion_tokens > len(
            answer.tokens
        )

    @property
    def unfinished(self) -> int:
        return sum(answer.finish is None for answer in self.answers.values())

    def turn(self) -> bool:
        """Let one thing happen; False if nothing did."""
        self.now += 1.0
        full = [wire for wire, frames in self.wires.items() if frames]
        if full and self.rng.random() < 0.5:
            sender, receiver = self.rng.choice(full)
            for message in self.wires[sender, receiver].popleft():
                self.links[receiver].inbox.append((sender, message))
            return True
        return self._iterate(self.rng.choice(self.members)) or bool(full)

    def run(self, limit: int = 200_000) -> None:
        """Until every request has finished and every frame has arrived."""
        for _ in range(limit):
            if self.turn():
                continue
            # Nothing at random: look at everyone before calling it a stall.
            if any([self._iterate(member) for member in self.members]) or any(self.wires.values()):
                continue
            if not self.unfinished:
                return
            raise Stall(f"{self.unfinished} requests wait for nothing")
        raise Stall(f"not done after {limit} turns")

    def assert_clean(self) -> None:
        for member, engine in zip(self.members, self.engines, strict=True):
            assert len(member.visits) == 0
            assert len(member.home) == 0
            assert member.home.live.requests == 0
            assert member.home.live.tokens == 0
            assert member.home.live_requests == 0
            assert engine.free_tokens() == engine.pool_tokens
            assert engine.visits == 0
            assert member.stats.expired_waits == 0

    def _iterate(self, member: Subserver) -> bool:
        arrived = bool(self.links[member.member].inbox)
        member.receive()
        work = member.launch()
        if work:
            member.complete(work, member.step(work))
        return arrived or bool(work)
