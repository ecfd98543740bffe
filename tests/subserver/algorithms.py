"""Routing algorithms that exercise what the built-in ones do not.

Served as ``tests.subserver.algorithms:Name``. Except for `Wander`, they keep state, or
send some; `members` are those they use, so that requests with fewer than all members exist.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tokenrouter.schedulers.base import Decision, Proposal, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import Acceptance, Checks, Declared, RouterScore

HERE = __name__


class Wander(RoutingScheduler):
    """Goes to a random one of ``visits`` at every position, and keeps most tokens."""

    def __init__(
        self,
        members: Sequence[str],
        router_threshold: float | None = None,
        visits: Sequence[int] = (),
    ) -> None:
        super().__init__(members, router_threshold)
        self.visits = tuple(visits) or tuple(range(len(members)))

    def route(self, request: Request, step: Step) -> Decision:
        to = self.visits[int(request.draw() * len(self.visits))]
        keep = to == request.member or request.draw(1) < 0.6
        return Decision(int(keep), to)


@dataclass
class Turn:
    """How much longer a member keeps control, and a sum over all payloads so far."""

    left: int = 1
    total: int = 0


class Bursts(RoutingScheduler):
    """Each of ``visits`` in turn writes 1 to ``longest`` tokens.

    The payload says how many, and carries a sum over everything written, so that a
    payload lost, repeated or exchanged changes all that follows.
    """

    def __init__(
        self,
        members: Sequence[str],
        router_threshold: float | None = None,
        visits: Sequence[int] = (),
        longest: int = 5,
    ) -> None:
        super().__init__(members, router_threshold)
        self.visits = tuple(visits) or tuple(range(len(members)))
        self.longest = longest

    def start(self, request: Request) -> Turn:
        return Turn()

    def receive(self, request: Request, payload: bytes) -> None:
        if payload:
            request.state.left, request.state.total = struct.unpack("<II", payload)

    def route(self, request: Request, step: Step) -> Decision:
        request.state.left -= 1
        request.state.total = (request.state.total * 31 + step.tokens[0]) % 65521
        if request.state.left > 0 or len(self.visits) == 1:
            return Decision(1, request.member)
        here = self.visits.index(request.member)
        return Decision(1, self.visits[(here + 1) % len(self.visits)])

    def send(self, request: Request, step: Step, decision: Decision) -> bytes:
        total = request.state.total
        return struct.pack("<II", 1 + total % self.longest, total)


class Bounce(RoutingScheduler):
    """Hands over ``hops`` times without a token, then commits one and stays where it is.

    With two of ``visits`` every second hop returns to a member that has all tokens in KV.
    """

    def __init__(
        self,
        members: Sequence[str],
        router_threshold: float | None = None,
        visits: Sequence[int] = (),
        hops: int = 2,
    ) -> None:
        super().__init__(members, router_threshold)
        self.visits = tuple(visits) or tuple(range(len(members)))
        self.hops = hops

    def start(self, request: Request) -> int:
        return 0

    def receive(self, request: Request, payload: bytes) -> None:
        request.state = payload[0] if payload else 0

    def route(self, request: Request, step: Step) -> Decision:
        if request.state < self.hops and len(self.visits) > 1:
            here = self.visits.index(request.member)
            return Decision(0, self.visits[(here + 1) % len(self.visits)])
        request.state = 0
        return Decision(1, request.member)

    def send(self, request: Request, step: Step, decision: Decision) -> bytes:
        return bytes([request.state + 1])


class Drafty(RoutingScheduler):
    """Drafts, checks, takes back, reads scratch tokens and hands over, all at random.

    ``limit``: of the output, which drafts may reach and not pass.
    A counter travels with the request, so that no two decisions are drawn alike.
    """

    drafts = True
    scratch_tokens = 4

    def __init__(
        self,
        members: Sequence[str],
        router_threshold: float | None = None,
        visits: Sequence[int] = (),
        limit: int = 0,
    ) -> None:
        super().__init__(members, router_threshold)
        self.visits = tuple(visits) or tuple(range(len(members)))
        self.limit = limit

    def signals(self, member: int) -> Sequence[Declared]:
        return [Checks()] if member != self.visits[0] else []

    def start(self, request: Request) -> int:
        return 0

    def receive(self, request: Request, payload: bytes) -> None:
        request.state = int.from_bytes(payload, "little")
        if self._roll(request, 0) < 0.2:
            request.scratch = [100 + request.state % 100] * (1 + request.state % 4)

    def route(self, request: Request, step: Step) -> Decision:
        request.state += 1
        cut, keep = self._cut(request, step)
        left = request.drafts - cut + keep
        roll = self._roll(request, 1)
        drafts = 0 if roll < 0.2 else int(roll * (left + 1)) if roll < 0.4 else left
        to = self.visits[int(self._roll(request, 2) * len(self.visits))]
        stays = to == request.member
        if stays and not (keep or cut or step.scratch):
            keep = 1
        if request.position - cut + keep + stays > self.limit:
            drafts = 0
        return Decision(keep, to, cut, drafts)

    def _cut(self, request: Request, step: Step) -> tuple[int, int]:
        held, roll = request.drafts, self._roll(request, 3)
        if step.scratch:
            return int(roll * (held + 1)) if roll < 0.5 else 0, 0
        for index, check in enumerate(step.checks):
            if not check.accepted and check.probability < 0.4:
                return held - index, int(roll < 0.8)
        if held and roll < 0.1:
            return 1 + request.state % held, 0
        return 0, int(roll < 0.85)

    def send(self, request: Request, step: Step, decision: Decision) -> bytes:
        return request.state.to_bytes(4, "little")

    def _roll(self, request: Request, what: int) -> float:
        return request.draw(8 * request.state + what)


class UntoldError(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


class Faulty(RoutingScheduler):
    """Writes ``good`` tokens, then breaks the contract as ``fault`` says.

    Faults: see `FAULTS`; ``on``: the member that is at fault (0 and 1 write in turn).
    """

    scratch_tokens = 2

    def __init__(
        self,
        members: Sequence[str],
        router_threshold: float | None = None,
        fault: str = "route raises",
        on: int = 0,
        good: int = 3,
    ) -> None:
        super().__init__(members, router_threshold)
        if fault == "cannot be made":
            raise RuntimeError("not today")
        self.fault, self.on, self.good = fault, on, good
        self.drafts = fault in PROPOSALS

    def _due(self, request: Request) -> bool:
        return request.member == self.on and request.position >= self.good

    def signals(self, member: int) -> Sequence[object]:
        return SIGNALS.get(self.fault, []) if member == self.on else []

    def start(self, request: Request) -> None:
        if self.fault == "start raises" and request.member == self.on:
            raise RuntimeError("no start")

    def receive(self, request: Request, payload: bytes) -> None:
        if self._due(request):
            if self.fault == "receive raises":
                raise KeyError("no receive")
            request.scratch = SCRATCH.get(self.fault, ())
            request.proposals = PROPOSALS.get(self.fault, ())
        else:
            request.proposals = [ONE] * request.drafts

    def route(self, request: Request, step: Step) -> Decision:
        to = 1 - request.member
        if self._due(request):
            if self.fault == "raises what cannot be told":
                raise UntoldError
            if self.fault == "route exits":
                raise SystemExit(3)
            if self.fault == "route raises":
                raise ZeroDivisionError("no route")
            if self.fault in DECISIONS:
                return DECISIONS[self.fault]
            if self.fault in CLAIMS:
                request.drafts = CLAIMS[self.fault]
                return Decision(0, to, cut=1000)
        return Decision(1, to, drafts=int(self.drafts and to == self.on))

    def send(self, request: Request, step: Step, decision: Decision) -> bytes:
        if not self._due(request):
            return b""
        if self.fault == "send raises":
            raise ValueError("no send")
        return PAYLOADS.get(self.fault, b"")


EXACT = Checks(rule=Acceptance("exact"))
ONE = Proposal((3,), (1.0,), (0.5,), 0.5)
SIGNALS: dict[str, list[object]] = {
    "signals are nonsense": ["entropy"],
    "signals are no keys": [RouterScore([])],
}
SCRATCH = {
    "reads a number": 5,
    "reads words": ["one"],
    "reads what is no token": [-1],
    "reads an id too many": [1 << 40],
    "reads more than it said": [1, 2, 3],
}
PROPOSALS = {
    "proposes a number": 5,
    "proposes None": [None],
    "proposes too much": [ONE, ONE],
    "proposes nothing": [],
    "proposes no ids": [Proposal((), (), (), 0.5)],
    "proposes uneven columns": [Proposal((3, 4), (1.0,), (0.5,), 0.5)],
    "proposes words": [Proposal(("a",), (1.0,), (0.5,), 0.5)],
    "proposes what is no token": [Proposal((-1,), (1.0,), (0.5,), 0.5)],
    "proposes the impossible": [Proposal((3,), (-1.0,), (0.5,), 0.5)],
    "proposes nan": [Proposal((3,), (float("nan"),), (0.5,), 0.5)],
    "proposes no top": [Proposal((3,), (1.0,), (0.5,), None)],
}
CLAIMS: dict[str, Any] = {"claims many drafts": 1000, "forgets its drafts": None}
SIGNALS |= {fault: [EXACT] for fault in PROPOSALS}
DECISIONS = {
    "keeps more than there is": Decision(2, 0),
    "keeps less than nothing": Decision(-1, 1),
    "keeps a word": Decision("1", 1),
    "keeps a half": Decision(0.5, 1),
    "keeps a float": Decision(1.0, 1),
    "keeps None": Decision(None, 1),
    "goes to nobody": Decision(1, 99),
    "goes to a name": Decision(1, "m1"),
    "goes to a float": Decision(1, 1.0),
    "goes outside its route": Decision(1, 2),
    "repeats for ever": Decision(0, 0),
    "decides nothing": None,
    "decides a pair": (1, 1),
    "decides with half a class": SimpleNamespace(to=1),
}
PAYLOADS = {
    "sends too much": bytes(64 * 1024 + 1),
    "sends text": "text",
    "sends nothing at all": None,
}
FAULTS = [
    "cannot be made",
    "start raises",
    "receive raises",
    "route raises",
    "route exits",
    "raises what cannot be told",
    "send raises",
    *DECISIONS,
    *PAYLOADS,
    *SIGNALS,
    *SCRATCH,
    *CLAIMS,
]
