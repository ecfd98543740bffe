"""Small objects for unit tests: visits, messages and a recording engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenrouter.errors import ModelError, RequestError
from tokenrouter.ipc.messages import Commit, HandOver, Logprob, Route, Sampling, Submit
from tokenrouter.ipc.supervision import MemberReady, Roster
from tokenrouter.schedulers.signals import Signal
from tokenrouter.subserver.engine import Meanwhile, StepBatch, Visit, Work, nothing
from tokenrouter.subserver.owned import Owned
from tokenrouter.subserver.recording import Recorder

GREEDY = Sampling(8, top_k=1)


def route(*members: int, home: int = 0, algorithm: str = "single", **options: object) -> Route:
    """A route over ``members`` (default: 0 and 1)."""
    return Route(algorithm, members or (0, 1), home, **options)


def make_visit(
    uid: int,
    length: int = 4,
    computed: int = 0,
    *,
    prompt: int | None = None,
    control: bool = True,
    counted: bool = True,
    eager: bool = False,
    resident: bool = False,
    blocked: bool = False,
) -> Visit:
    """A visit with ``length`` tokens known, ``computed`` of them in KV."""
    return Visit(
        uid=uid,
        home=0,
        prompt_length=length if prompt is None else prompt,
        tokens=list(range(100, 100 + length)),
        sampling=GREEDY,
        route=route(),
        counted=counted,
        eager=eager,
        computed=computed,
        control=control,
        resident=resident,
        blocked=blocked,
    )


def make_roster(
    members: int = 2,
    pool_tokens: int = 1000,
    max_visits: int = 16,
    eos_ids: Sequence[Sequence[int]] = ((199,), (198,)),
) -> Roster:
    """What the supervisor tells every member."""
    ready = (
        MemberReady(m, pool_tokens, max_visits, 1000, 200, tuple(eos_ids[m]), "")
        for m in range(members)
    )
    return Roster(tuple(ready), (0,) * members)


def make_submit(
    uid: int,
    prompt: Sequence[int] = (101, 102, 103),
    *,
    to: Route | None = None,
    sampling: Sampling = GREEDY,
    stream: bool = True,
) -> Submit:
    """A request for the home of ``to``."""
    return Submit(uid, f"r{uid}", list(prompt), sampling, to or route(), stream)


class FakeEngine:
    """Counts tokens and slots, and records every call; token i of a step is 100 + i."""

    def __init__(self, pool_tokens: int = 1000, max_visits: int = 16, cached: int = 0) -> None:
        self.pool_tokens = pool_tokens
        self.max_visits = max_visits
        self.calls: list[tuple[object, ...]] = []
        self.shared: list[tuple[int, int]] = []
        self.free = pool_tokens
        self.slots = max_visits
        self._cached = cached
        self.logprobs: dict[int, Logprob] = {}
        self.failed: dict[int, RequestError | ModelError] = {}
        self.preparing: dict[int, Exception | None] = {}
        """Visits whose grammar is not ready, or will never be."""

    def limit_vocabulary(self, size: int) -> None:
        self.calls.append(("limit_vocabulary", size))

    def hold(self, *visits: Visit) -> FakeEngine:
        """Account for visits that are resident already."""
        for visit in visits:
            visit.resident = True
            self.slots -= 1
            self.free -= visit.computed
        return self

    def prepare(self, visit: Visit, wake: Callable[[], None]) -> bool:
        self.calls.append(("prepare", visit.uid))
        if visit.uid in self.preparing and isinstance(self.preparing[visit.uid], Exception):
            raise self.preparing[visit.uid]
        return visit.uid not in self.preparing

    def abandon(self, visit: Visit) -> None:
        self.calls.append(("abandon", visit.uid))

    def admit(self, visit: Visit) -> bool:
        self.calls.append(("admit", visit.uid))
        if not self.slots:
            return False
        self.slots -= 1
        visit.computed = min(self._cached, visit.length - 1)
        self.free -= visit.computed
        return True

    def should_wait(self, visit: Visit, others: Sequence[Visit]) -> bool:
        return False

    def share(self, visit: Visit, length: int) -> None:
        self.shared.append((visit.uid, length))

    def step(
        self, work: Sequence[Work], signals: Sequence[Signal], meanwhile: Meanwhile = nothing
    ) -> StepBatch:
        meanwhile()
        self.calls.append(("step", [(visit.uid, n) for visit, n in work], signals))
        self.free -= sum(n for _, n in work)
        values = {signal: [0.5 + i for i in range(len(work))] for signal in signals}
        tokens = [100 + i for i in range(len(work))]
        return StepBatch(tokens, values, self.logprobs, self.failed)

    def truncate(self, visit: Visit, length: int) -> None:
        self.calls.append(("truncate", visit.uid, length))
        self.free += visit.computed - length

    def release(self, visit: Visit) -> None:
        self.calls.append(("release", visit.uid))
        self.slots += 1
        self.free += visit.computed

    def free_tokens(self) -> int:
        return self.free


def decide(
    recorder: Recorder, owned: Owned, member: int, message: Commit | HandOver, now: float
) -> None:
    """A decision without drafts is recorded."""
    length, kept = message.start, len(message.tokens)
    recorder.decided(owned, member, message, length, kept, now)
