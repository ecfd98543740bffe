"""A deployment in simulated time: members that measure, take plans and can be lost."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy
from msgspec.structs import replace

from tests.frontend.fakes import state_of
from tokenrouter.config import Config
from tokenrouter.ipc.member_state import Measurements, MemberState, StepSums
from tokenrouter.ipc.messages import DETOKENIZER, Message
from tokenrouter.ipc.operations import Inspect, Plan, Planned
from tokenrouter.ipc.supervision import Down, MemberReady, Roster, Up
from tokenrouter.planner.controller import Controller
from tokenrouter.planner.problem import Problem, Solution, terms
from tokenrouter.planner.solving import solve
from tokenrouter.subserver.process import rules_of
from tokenrouter.subserver.thresholds import Thresholds
from tokenrouter.throughput_model.estimate import NO_STEPS

SOLVING_S = 1.0
"""From a problem to its solution."""


class Member:
    """What one member counts; times in seconds."""

    def __init__(self, index: int, wanted: Sequence[int], now: float) -> None:
        self.thresholds = Thresholds(index, wanted)
        self.queue: list[int] = []
        self.running: list[int] = []
        self._index, self._born, self._began = index, now, now
        self._steps: dict[int, list[float]] = {}
        self._hops: dict[int, list[int]] = {}
        self._runs: dict[int, int] = {}
        self._live_seconds, self._looked = 0.0, now

    def live(self, requests: int, now: float) -> None:
        self._live_seconds += requests * (now - self._looked)
        self._looked = now

    def begin(self, now: float) -> None:
        self.running, self.queue, self._began = self.queue, [], now

    def end(self, now: float) -> list[int]:
        took, size = now - self._began, len(self.running)
        sums = self._steps.setdefault(size, [0.0] * 6)
        for index, each in enumerate((1, took, took**2, size, size**2, size * took)):
            sums[index] += each
        done, self.running = self.running, []
        return done

    def decided(self, to: int, run: int) -> None:
        hop = self._hops.setdefault(to, [0, 0])
        hop[0] += 1
        hop[1] += to == 0
        if to != self._index:
            self._runs[run] = self._runs.get(run, 0) + 1

    def look(self, now: float) -> Measurements:
        return Measurements(
            now - self._born,
            {b: StepSums(int(s[0]), s[1], s[2], int(s[3]), int(s[4]), s[5])
             for b, s in self._steps.items()},
            NO_STEPS,
            {},
            {to: (count, kept) for to, (count, kept) in self._hops.items()},
            dict(self._runs),
            self._live_seconds,
        )  # fmt: skip


@dataclass
class World:
    """``requests`` that never end, between a small and a large model, and their planner.

    ``p``: chance that a small step leads to the large model; ``fixed_runs``: every so many do;
    ``bursts``: of each request, (one chance, the other, mean steps from one to the other).
    ``loses``: messages to members that do not arrive. ``seen``: (time, row in force) after each
    change of it.
    """

    requests: int
    p: float = 0.35
    step_ms: Sequence[float] = (6.0, 27.9)
    wanted: Sequence[int | str] = ("auto", "auto")
    itl_p99_ms: float | None = None
    fixed_runs: int | None = None
    bursts: tuple[float, float, float] | None = None
    solver: Callable[[Problem], Solution | None] = solve
    loses: Callable[[int, Message], bool] = lambda member, message: False
    now: float = 0.0
    seen: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)
    planned: list[Planned] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = numpy.random.default_rng(1)
        self._config = Config.model_validate(
            {
                "models": [
                    {"name": name, "engine": "timed", "step_ms": 1, "threshold": wanted}
                    for name, wanted in zip(("small", "large"), self.wanted, strict=True)
                ],
                "objective": "throughput"
                if self.itl_p99_ms is None
                else {"itl_p99_ms": self.itl_p99_ms},
            }
        )
        self.members = [self._start_member(m) for m in (0, 1)]
        self._completions: list[tuple[float, int]] = []
        self._runs = [0] * self.requests
        self._often = [bool(self._rng.random() < 0.5) for _ in self._runs]
        self._solution: tuple[float, Solution | None] | None = None
        self.restart_planner()
        self.members[0].queue = list(range(self.requests))

    def restart_planner(self) -> None:
        ready = tuple(MemberReady(m, 10_000, 256, 2048, 300, (), "") for m in (0, 1))
        self.controller = Controller(terms(self._config, Roster(ready, (1, 2))), self.now)
        self._solution = None

    def restart_member(self, index: int) -> None:
        """All its requests end, and come again."""
        self.controller.hear(index, Down(index), self.now)
        self.members[index] = self._start_member(index)
        for member in self.members:
            member.queue, member.running = [], []
        self._completions = []
        self.members[0].queue = list(range(self.requests))
        self.controller.hear(index, Up(index, 1), self.now)

    def set_requests(self, count: int) -> None:
        """From now on there are so many."""
        for member in self.members:
            member.queue = [each for each in member.queue if each < count]
            member.running = [each for each in member.running if each < count]
        self._runs += [0] * (count - len(self._runs))
        self._often += [False] * (count - len(self._often))
        self.members[0].queue += range(self.requests, count)
        self.requests = count

    @property
    def row(self) -> tuple[int, ...]:
        """Thresholds in force."""
        return tuple(each.thresholds.now(self.requests) for each in self.members)

    def run(self, seconds: float) -> None:
        """Let time pass, with the planner's loop as the process has it."""
        end = self.now + seconds
        while self.now < end:
            for receiver, message in list(self.controller.messages(self.now)):
                self._deliver(receiver, message)
            self._work(self.now + self.controller.pause)
            if self._solution is not None and self.now >= self._solution[0]:
                (_, solution), self._solution = self._solution, None
                self.controller.solved(solution, self.now)
            if problem := self.controller.problem(self.now):
                self._solution = self.now + SOLVING_S, self.solver(problem)

    def _start_member(self, index: int) -> Member:
        return Member(index, rules_of(self._config, index).thresholds, self.now)

    def _deliver(self, receiver: int, message: Message) -> None:
        if receiver == DETOKENIZER:
            assert isinstance(message, Planned)
            self.planned.append(message)
        elif self.loses(receiver, message):
            return
        elif isinstance(message, Plan):
            self.members[receiver].thresholds.apply(message)
            assert not self.members[receiver].thresholds.unsafe
            if (self.seen[-1][1] if self.seen else self._config.first_thresholds) != self.row:
                self.seen.append((self.now, self.row))
        else:
            assert isinstance(message, Inspect)
            self.controller.hear(receiver, self._state(receiver), self.now)

    def _state(self, index: int) -> MemberState:
        member = self.members[index]
        member.live(self.requests, self.now)
        return replace(
            state_of(0, index),
            live=self.requests,
            measurements=member.look(self.now),
            plan=member.thresholds.version,
        )

    def _work(self, until: float) -> None:
        """All completions of a moment come before the launches."""
        self._launch()
        while self._completions and self._completions[0][0] <= until:
            self.now = self._completions[0][0]
            while self._completions and self._completions[0][0] <= self.now:
                _, index = heapq.heappop(self._completions)
                for request in self.members[index].end(self.now):
                    self._decide(index, request)
            self._launch()
        self.now = until

    def _decide(self, index: int, request: int) -> None:
        self._runs[request] += 1
        if index == 1:
            to = 0
        elif self.fixed_runs is None:
            to = int(self._rng.random() < self._chance(request))
        else:
            to = int(self._runs[request] >= self.fixed_runs)
        self.members[index].decided(to, self._runs[request])
        if to != index:
            self._runs[request] = 0
        self.members[to].queue.append(request)

    def _chance(self, request: int) -> float:
        if self.bursts is None:
            return self.p
        self._often[request] ^= bool(self._rng.random() * self.bursts[2] < 1)
        return self.bursts[self._often[request]]

    def _launch(self) -> None:
        for index, member in enumerate(self.members):
            threshold = member.thresholds.now(self.requests)
            if not member.running and len(member.queue) >= threshold:
                member.begin(self.now)
                took = self.step_ms[index] / 1e3 * float(self._rng.normal(1.0, 0.005))
                heapq.heappush(self._completions, (self.now + took, index))
