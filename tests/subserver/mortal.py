"""A `Deployment` whose members die and return, as the supervisor and the links have it.

What a member had sent arrives in part; what it was sent is lost; each other member hears of
its death after what arrived, and of its return before anything new. The front end fails the
requests that may need it, some time before it is back, and tells their homes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.subserver.harness import ALPHABET, Deployment, MemoryLinks
from tokenrouter.ipc.messages import SUPERVISOR, Abort, Message, Output, Route, Sampling
from tokenrouter.ipc.supervision import Down, Roster, Up
from tokenrouter.subserver.loop import Subserver
from tokenrouter.subserver.timed import TimedEngine

DEAD = {"type": "abort", "status_code": 503}


class Frame(list[Message]):
    """Messages from one generation of a member to one of another."""

    ends: tuple[int, int]


@dataclass
class MortalLinks(MemoryLinks):
    """``known``: the generation of each other member that is up, as far as heard."""

    known: dict[int, int] = field(default_factory=dict)

    def poll(self, timeout: float | None) -> Iterable[Any]:
        for sender, message in super().poll(timeout):
            if isinstance(message, Down):
                self.known.pop(message.process, None)
                self.posted.pop(message.process, None)
            elif isinstance(message, Up):
                self.known[message.process] = message.generation
            yield sender, message

    def post(self, member: int, message: Message) -> None:
        if member in self.known:
            super().post(member, message)

    def flush(self) -> None:
        for member, messages in self.posted.items():
            frame = Frame(messages)
            mortal: Any = self.deployment
            frame.ends = mortal.generations[self.member], self.known[member]
            mortal.wires[self.member, member].append(frame)
        self.posted = {}


class Mortal(Deployment):
    """See `kill`. ``failed``: requests that the front end has answered with 503 by itself."""

    def __init__(
        self,
        thresholds: Sequence[int],
        *,
        eager: bool = False,
        engine: type[TimedEngine] = TimedEngine,
        subserver: type[Subserver] = Subserver,
        **options: Any,
    ) -> None:
        super().__init__(thresholds, eager=eager, engine=engine, **options)
        self._make = subserver, engine, eager
        count = len(thresholds)
        self.generations = [0] * count
        self.failed: set[str] = set()
        self.victims: set[int] = set()
        self._down: set[int] = set()
        self._routes: dict[str, Route] = {}
        self._roster: Roster = self.members[0].home._roster
        self._rules = self.members[0].rules
        for member in range(count):
            self._begin(member)

    def submit(
        self, uid: int, prompt: Sequence[int], route: Route, sampling: Sampling, stream: bool = True
    ) -> None:
        self._routes[str(uid)] = route
        super().submit(uid, prompt, route, sampling, stream)
        if self._down.intersection(route.members):
            self._fail(str(uid))

    def abort(self, uid: int, home: int) -> None:
        if str(uid) not in self.failed:
            super().abort(uid, home)

    def collect(self, output: Output) -> None:
        if output.rid not in self.failed:
            super().collect(output)

    def carry(self, sender: int, receiver: int) -> None:
        frame: Any = self.wires[sender, receiver][0]
        if frame.ends == (self.generations[sender], self.generations[receiver]):
            super().carry(sender, receiver)
        else:
            self.wires[sender, receiver].popleft()

    def kill(self, member: int) -> None:
        """It dies now, and is back after a while."""
        if member in self._dead():
            return
        self.victims.add(member)
        self.running.pop(member, None)
        self.awake.pop(member, None)
        self.links[member].inbox.clear()
        for other in range(len(self.names)):
            if other == member:
                continue
            wire = self.wires[member, other]
            for _ in range(self.rng.randint(0, len(wire))):
                self.carry(member, other)
            wire.clear()
            if other not in self._dead():
                self._arrive(other, SUPERVISOR, Down(member))
        self.generations[member] *= -1
        self.generations[member] -= 1  # below zero: dead
        heard = self.now + self.rng.expovariate(1 / 50)
        self.at(heard, lambda: self._heard(member))
        self.at(heard + self.rng.expovariate(1 / 100), lambda: self._return(member))

    def _dead(self) -> set[int]:
        return {member for member, each in enumerate(self.generations) if each < 0}

    def _heard(self, member: int) -> None:
        """The front end hears of a death."""
        self._down.add(member)
        for rid, route in self._routes.items():
            if member in route.members and self.answers[rid].finish is None:
                self._fail(rid)

    def _fail(self, rid: str) -> None:
        self.answers[rid].finish = DEAD
        self.failed.add(rid)
        home = self._routes[rid].home
        if home not in self._dead():
            self._arrive(home, -1, Abort(int(rid)))

    def _return(self, member: int) -> None:
        self.generations[member] *= -1
        up = Up(member, self.generations[member], self._roster.members[member], 1)
        for other in range(len(self.names)):
            if other != member and other not in self._dead():
                self._arrive(other, SUPERVISOR, up)
        self._begin(member)
        for other in self._dead():
            self._arrive(member, SUPERVISOR, Down(other))
        self._down.discard(member)

    def _begin(self, member: int) -> None:
        subserver, engine, eager = self._make
        others = [m for m in range(len(self.names)) if m != member]
        known = {m: abs(self.generations[m]) for m in others}
        links = MortalLinks(member, self, known=known)
        ready = self._roster.members[member]
        self.links[member] = links
        self.engines[member] = engine(
            lambda b: 0.0, ALPHABET, ready.pool_tokens, ready.max_visits, seed=member,
            wait_until=lambda due: None,
        )  # fmt: skip
        self.members[member] = subserver(
            member, self.names, self._roster, self.engines[member], links, self._rules,
            vocabulary=self.vocabulary, eager=eager, clock=lambda: self.now,
        )  # fmt: skip
        self.awake[member] = None

    def _arrive(self, receiver: int, sender: int, message: Any) -> None:
        if receiver not in self._dead():
            super()._arrive(receiver, sender, message)


Kill = Callable[[Mortal], None]
