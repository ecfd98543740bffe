"""A whole deployment in one thread: real loops, timed engines, links with random delays.

Time is a counter. Each turn does one thing, chosen at random: it delivers one frame, or
lets one member go from receive to launch, or finishes the step that a member has in
flight. So every order of events that the links allow can happen. A member that would
wait for a message does not run until one comes, as in the real loop: a state in which
nothing can happen while requests are unfinished is a `Stall`.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tokenrouter.ipc.member_state import Buckets, MemberState
from tokenrouter.ipc.messages import FRONT_END, Abort, Message, Output, Route, Sampling, Submit
from tokenrouter.ipc.supervision import MemberReady, Roster
from tokenrouter.schedulers.base import Vocabulary
from tokenrouter.subserver.batching import Limits, Rules
from tokenrouter.subserver.engine import Work
from tokenrouter.subserver.loop import Subserver
from tokenrouter.subserver.timed import TimedEngine

ALPHABET = tuple(range(100, 200))
EOS = 199
FOREVER = 1e9
WIDE = Limits(256, 512)
SPEEDS = (1, 1, 4, 16)
"""How much likelier some members and links are to act than others."""


class Stall(AssertionError):
    """Requests are unfinished and nothing is outstanding."""


class Asleep(Exception):
    """A member waits for a message, and there is none."""


def text_of(ids: Sequence[int]) -> str:
    """The text of token ids: one character each."""
    return "".join(map(chr, ids))


class Characters:
    """The vocabulary of these deployments."""

    def encode(self, text: str) -> list[int]:
        return list(map(ord, text))

    def decode(self, ids: Sequence[int]) -> str:
        return text_of(ids)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


@dataclass
class MemoryLinks:
    """One member's links: outgoing frames queue per receiver, incoming ones in ``inbox``."""

    member: int
    deployment: Deployment
    inbox: deque[tuple[int, Message]] = field(default_factory=deque)
    posted: dict[int, list[Message]] = field(default_factory=dict)
    woken: bool = False

    def poll(self, timeout: float | None) -> Iterable[tuple[int, Message]]:
        woken, self.woken = self.woken, False
        if timeout != 0.0 and not self.inbox and not woken:
            assert not self.posted, "waits with messages not sent"
            raise Asleep
        while self.inbox:
            yield self.inbox.popleft()

    def post(self, member: int, message: Message) -> None:
        # Through the wire format, so that nothing is shared by reference.
        self.posted.setdefault(member, []).append(_DECODER.decode(_ENCODER.encode(message)))

    def flush(self) -> None:
        for member, messages in self.posted.items():
            self.deployment.wires[self.member, member].append(messages)
        self.posted = {}

    def busy(self, seconds: float) -> None:
        """Nobody watches."""

    def wake(self) -> None:
        self.deployment.awake[self.member] = None
        self.woken = True

    def emit(self, outputs: Sequence[Output | MemberState]) -> None:
        for output in outputs:
            assert isinstance(output, Output)
            self.deployment.collect(output)

    def dropped(self) -> dict[str, int]:
        return {}

    def delays(self) -> dict[str, Buckets]:
        return {}


@dataclass
class Answer:
    """What the detokenizer was told of one request."""

    tokens: list[int] = field(default_factory=list)
    models: list[int] = field(default_factory=list)
    finish: dict[str, Any] | None = None
    hand_overs: int = 0
    member_tokens: list[int] = field(default_factory=list)
    outputs: int = 0
    cached_tokens: int = 0


class Deployment:
    """``thresholds`` has one entry per member; see `submit`, `at` and `run`.

    Args:
        pools: KV tokens of each member, or of all.
        eos_ids: of each member (default: one that all share).
        seed: of the order of events.
    """

    def __init__(
        self,
        thresholds: Sequence[int],
        *,
        pools: Sequence[int] | int = 100_000,
        max_visits: int = 512,
        limits: Limits = WIDE,
        eager: bool = False,
        seed: int = 0,
        engine: type[TimedEngine] = TimedEngine,
        subserver: type[Subserver] = Subserver,
        eos_ids: Sequence[Sequence[int]] | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        count = len(thresholds)
        members = range(count)
        pools = [pools] * count if isinstance(pools, int) else list(pools)
        self.eos_ids = [(EOS,)] * count if eos_ids is None else [tuple(ids) for ids in eos_ids]
        self.vocabulary = vocabulary or Characters()
        self.rng = random.Random(seed)
        self.now = 0.0
        self.names = [f"m{m}" for m in members]
        self.wires: dict[tuple[int, int], deque[list[Message]]] = {
            link: deque() for link in itertools.permutations(members, 2)
        }
        self.awake: dict[int, None] = dict.fromkeys(members)
        self.running: dict[int, list[Work]] = {}
        self.batches: list[list[int]] = [[] for _ in members]
        """Sizes of the steps of each member, in order."""
        self.answers: dict[str, Answer] = {}
        self._speed = {actor: self.rng.choice(SPEEDS) for actor in (*members, *self.wires)}
        self._schedule: list[tuple[float, int, Callable[[], None]]] = []
        ready = tuple(
            MemberReady(m, pools[m], max_visits, 100_000, 200, self.eos_ids[m], "") for m in members
        )
        roster = Roster(ready, (0,) * count)
        rules = Rules(tuple(thresholds), limits, max_wait=FOREVER)
        self.links = [MemoryLinks(m, self) for m in members]
        self.engines = [
            engine(
                lambda b: 0.0, ALPHABET, pools[m], max_visits, seed=m, wait_until=lambda due: None
            )
            for m in members
        ]
        self.members = [
            subserver(
                m, self.names, roster, self.engines[m], self.links[m], rules,
                vocabulary=self.vocabulary, eager=eager, clock=lambda: self.now,
            )
            for m in members
        ]  # fmt: skip

    def submit(
        self,
        uid: int,
        prompt: Sequence[int],
        route: Route,
        sampling: Sampling,
        stream: bool = True,
    ) -> None:
        """What the front end does with a request, now."""
        self.answers[str(uid)] = Answer()
        self._arrive(
            route.home, FRONT_END, Submit(uid, str(uid), list(prompt), sampling, route, stream)
        )

    def abort(self, uid: int, home: int) -> None:
        """The client gives up, now."""
        self._arrive(home, FRONT_END, Abort(uid))

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do something once ``time`` turns have passed, or sooner if nothing else happens."""
        heapq.heappush(self._schedule, (time, len(self._schedule), action))

    def collect(self, output: Output) -> None:
        """What the detokenizer does: add an output to its answer."""
        answer = self.answers[output.rid]
        assert answer.finish is None, "output after the finish"
        assert (output.context is None) == bool(answer.tokens), "context is for the first output"
        answer.outputs += 1
        answer.tokens += output.tokens
        answer.models += output.token_models or []
        answer.finish = output.finish
        answer.hand_overs = output.hand_overs
        answer.member_tokens = output.member_tokens
        answer.cached_tokens = output.cached_tokens
        assert output.completion_tokens == len(answer.tokens) == sum(output.member_tokens)

    @property
    def unfinished(self) -> int:
        """Requests without a final output."""
        return sum(answer.finish is None for answer in self.answers.values())

    def turn(self) -> bool:
        """Let one thing happen; False if nothing can."""
        self.now += 1.0
        while self._schedule and self._schedule[0][0] <= self.now:
            heapq.heappop(self._schedule)[2]()
        actors: list[Any] = [*self.awake, *(link for link, queue in self.wires.items() if queue)]
        if not actors:
            if self._schedule:
                self.now = self._schedule[0][0]
            return bool(self._schedule)
        chosen = self.rng.choices(actors, [self._speed[actor] for actor in actors])[0]
        if isinstance(chosen, int):
            self._advance(chosen)
        else:
            self.carry(*chosen)
        return True

    def run(self, limit: int = 200_000) -> None:
        """Until every request has finished and every frame has arrived."""
        for _ in range(limit):
            if not self.turn():
                break
        else:
            raise Stall(f"not done after {limit} turns")
        if self.unfinished:
            raise Stall(f"{self.unfinished} requests wait for nothing")

    def carry(self, sender: int, receiver: int) -> None:
        """Deliver the oldest frame of a link."""
        for message in self.wires[sender, receiver].popleft():
            self._arrive(receiver, sender, message)

    def assert_clean(self) -> None:
        """Nothing is left of any request, and no launch had to be forced."""
        for member, engine in zip(self.members, self.engines, strict=True):
            assert len(member.visits) == 0
            assert len(member.home) == 0
            assert (member.home.live.requests, member.home.live.tokens) == (0, 0)
            assert member.home.live_requests == 0
            assert engine.free_tokens() == engine.pool_tokens
            assert engine.visits == 0
            assert member.stats.expired_waits == 0

    def _arrive(self, receiver: int, sender: int, message: Message) -> None:
        self.links[receiver].inbox.append((sender, message))
        self.awake[receiver] = None

    def _advance(self, index: int) -> None:
        member = self.members[index]
        if work := self.running.pop(index, None):
            member.complete(work, member.step(work))
            return
        try:
            member.receive()
        except Asleep:
            assert not member.home.take_outputs(), "waits with outputs not sent"
            del self.awake[index]
            return
        if work := member.launch():
            self._check(member, work)
            self.batches[index].append(len(work))
            self.running[index] = work

    def _check(self, member: Subserver, work: Sequence[Work]) -> None:
        """What every engine may rely on."""
        limits = member.rules.limits
        engine = member.engine
        assert len({visit.uid for visit, _ in work}) == len(work) <= limits.max_batch
        assert sum(n - 1 for _, n in work) <= limits.chunk
        assert sum(n for _, n in work) <= engine.free_tokens()
        assert sum(len(visit.to_check(n)) for visit, n in work) <= limits.checks
        for visit, n in work:
            assert 1 <= n <= visit.pending
            assert member.visits.get(visit.uid) is visit
            assert visit.resident and not visit.blocked and (visit.control or visit.eager)
        held = [visit.computed for visit in member.visits if visit.resident]
        assert engine.pool_tokens - engine.free_tokens() == sum(held)
        assert len(held) <= engine.max_visits
