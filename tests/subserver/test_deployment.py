"""Whole deployments: every answer is the plain loop's, nothing stalls, nothing is left."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokenrouter.subserver.memory
import tokenrouter.subserver.thresholds
from tests.subserver.algorithms import HERE
from tests.subserver.engines import MUTANTS, PrefixCache
from tests.subserver.harness import WIDE, Deployment, Stall
from tests.subserver.workload import Job, Mix, differences, make, submit_all
from tokenrouter.ipc.messages import Blocked, HandOver, Live, Message, Open, Route, Sampling
from tokenrouter.subserver.batching import Limits
from tokenrouter.subserver.blocking import Blocking
from tokenrouter.subserver.engine import StepBatch, Visit, Work
from tokenrouter.subserver.loop import Subserver
from tokenrouter.subserver.timed import TimedEngine

ROOM = 32
"""Tokens that one request may need: the smallest pool that is ever served."""


@dataclass(frozen=True)
class Scenario:
    """A deployment and the requests it gets; see `Deployment` and `Mix`."""

    seed: int
    thresholds: list[int]
    pools: list[int]
    slots: int = 64
    limits: Limits = WIDE
    eager: bool = False
    cache: bool = False
    requests: int = 64
    spread: int = 0
    aborts: float = 0.0
    grammars: float = 0.0

    def build(
        self, engine: type[TimedEngine] | None = None, **options: object
    ) -> tuple[Deployment, list[Job]]:
        """With its requests scheduled."""
        members = len(self.thresholds)
        deployment = options.pop("deployment", Deployment)(
            self.thresholds,
            pools=self.pools,
            max_visits=self.slots,
            limits=self.limits,
            eager=self.eager,
            seed=self.seed,
            eos_ids=[(199 - member,) for member in range(members)],
            engine=engine or (PrefixCache if self.cache else TimedEngine),
            **options,
        )
        mix = Mix(self.requests, ROOM, self.spread, self.aborts, members, self.grammars)
        jobs = make(random.Random(self.seed), mix, deployment.eos_ids)
        submit_all(deployment, jobs)
        return deployment, jobs


def broken(scenario: Scenario, **options: object) -> str | None:
    """How the deployment failed the checks of every test here, if it did."""
    deployment, jobs = scenario.build(**options)
    try:
        deployment.run(limit=60_000)
        deployment.assert_clean()
    except (Stall, AssertionError, IndexError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return next(iter(differences(deployment, jobs)), None)


@st.composite
def scenarios(draw: st.DrawFn, scarce: bool) -> Scenario:
    """With little or much of everything that requests share."""
    members = draw(st.integers(1, 4))
    threshold = st.one_of(st.just(1), st.integers(1, 64), st.integers(65, 200))
    pool = st.integers(ROOM, 4 * ROOM) if scarce else st.just(100_000)
    return Scenario(
        seed=draw(st.integers(0, 2**32)),
        thresholds=draw(st.lists(threshold, min_size=members, max_size=members)),
        pools=draw(st.lists(pool, min_size=members, max_size=members)),
        slots=draw(st.sampled_from([1, 2, 5, 64])) if scarce else 64,
        limits=Limits(draw(st.sampled_from([1, 3, 64])), draw(st.sampled_from([1, 2, 7, 512]))),
        eager=draw(st.booleans()),
        cache=draw(st.booleans()),
        spread=draw(st.sampled_from([0, 300, 3000])),
        aborts=draw(st.sampled_from([0.0, 0.3])),
    )


sizes = settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@settings(sizes, max_examples=40)
@given(scenarios(scarce=False))
def test_64_requests_at_once_get_what_the_plain_loop_gives(scenario: Scenario):
    assert broken(scenario) is None


@pytest.mark.slow
@settings(sizes, max_examples=60)
@given(scenarios(scarce=True))
def test_and_so_they_do_when_memory_and_slots_are_scarce(scenario: Scenario):
    assert broken(scenario) is None


@settings(sizes, max_examples=60)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 200), min_size=1, max_size=4), st.booleans())
def test_a_lone_request_runs_whatever_the_thresholds(seed: int, thresholds: list[int], eager: bool):
    pools = [ROOM] * len(thresholds)
    scenario = Scenario(seed, thresholds, pools, slots=1, eager=eager, requests=1)
    assert broken(scenario) is None


def test_scarcity_really_evicts_and_blocks(monkeypatch: pytest.MonkeyPatch):
    """Else the tests above would pass without any memory policy."""
    blocked = []
    plain = Blocking.starved
    monkeypatch.setattr(
        Blocking, "starved", lambda self, visits: (blocked.extend(visits), plain(self, visits))
    )
    deployment, jobs = Scenario(3, [1, 4, 2], [70, 64, 80], requests=64).build()
    deployment.run()
    assert differences(deployment, jobs) == []
    assert all(member.memory.evictions > 1 for member in deployment.members)
    assert len(blocked) > 20


class Compiling(TimedEngine):
    """Grammars that take a random time, and then wake their member."""

    deployment: Deployment

    def prepare(self, visit: Visit, wake: Callable[[], None]) -> bool:
        if visit.sampling.grammar is None:
            return True
        if visit.grammar is None:
            visit.grammar = []
            ends = self.deployment.now + self.deployment.rng.expovariate(1 / 100)
            self.deployment.at(ends, partial(self._end, visit, wake))
        return bool(visit.grammar)

    def _end(self, visit: Visit, wake: Callable[[], None]) -> None:
        visit.grammar.append("compiled")
        wake()

    def step(self, work: Sequence[Work], *args: Any) -> StepBatch:
        for visit, _ in work:
            assert not visit.control or visit.sampling.grammar is None or visit.grammar
        return super().step(work, *args)


def compiling(scenario: Scenario) -> tuple[Deployment, list[Job]]:
    deployment, jobs = scenario.build(Compiling)
    for engine in deployment.engines:
        engine.deployment = deployment  # type: ignore[attr-defined]
    return deployment, jobs


@pytest.mark.parametrize("seed", range(6))
def test_nobody_waits_for_a_grammar_but_its_request(seed: int):
    rng = random.Random(seed)
    thresholds = [rng.choice([1, 3, 40]) for _ in range(3)]
    scenario = Scenario(
        seed, thresholds, [rng.choice([70, 100_000])] * 3, eager=seed % 2 == 0,
        spread=300, aborts=0.2, grammars=0.4,
    )  # fmt: skip
    deployment, jobs = compiling(scenario)
    deployment.run()
    deployment.assert_clean()
    assert differences(deployment, jobs) == []
    assert sum(job.sampling.grammar is not None for job in jobs) > 15
    assert not any(member.blocking._preparing for member in deployment.members)


def test_a_compilation_that_wakes_nobody_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Compiling, "_end", lambda self, visit, wake: visit.grammar.append("late"))
    deployment, _ = compiling(Scenario(1, [1, 1], [100_000] * 2, grammars=1.0, requests=4))
    with pytest.raises(Stall):
        deployment.run()


def test_a_prefix_cache_is_really_hit():
    scenario = Scenario(3, [1, 4, 2], [70, 64, 80], cache=True, requests=64)
    deployment, jobs = scenario.build()
    deployment.run()
    assert differences(deployment, jobs) == []
    deployment.assert_clean()
    assert all(engine.hits > 20 for engine in deployment.engines)
    assert sum(engine.followers for engine in deployment.engines) > 3
    answers = deployment.answers
    assert all(answers[str(job.uid)].cached_tokens < len(job.prompt) for job in jobs)


def routed(deployment: Deployment, lengths: list[int], at: Callable[[int], float]) -> list[Job]:
    """Requests that wander over all members, one for each length."""
    everyone = tuple(range(len(deployment.names)))
    jobs = []
    for uid, length in enumerate(lengths):
        route = Route(f"{HERE}:Wander", everyone, uid % len(everyone), seed=uid, token_models=True)
        sampling = Sampling(length, ignore_eos=True)
        jobs.append(Job(uid, [100 + uid % 90], route, sampling, True, at(uid), None))
    submit_all(deployment, jobs)
    return jobs


@pytest.mark.parametrize("thresholds", [[200, 1], [70, 70, 70], [1, 30, 9, 64]])
def test_a_drain_needs_no_help(thresholds: list[int]):
    """One request after another ends, down to none."""
    deployment = Deployment(thresholds)
    jobs = routed(deployment, list(range(1, 65)), lambda uid: 0)
    deployment.run()
    assert differences(deployment, jobs) == []
    deployment.assert_clean()


def test_a_burst_after_silence():
    deployment = Deployment([20, 20, 20])
    jobs = routed(deployment, [12] * 50, lambda uid: 0 if uid < 2 else 5000)
    deployment.run()
    assert differences(deployment, jobs) == []
    deployment.assert_clean()


def test_requests_one_by_one():
    deployment = Deployment([1, 9])
    jobs = routed(deployment, [10] * 8, lambda uid: 10_000 * uid)
    deployment.run()
    assert differences(deployment, jobs) == []
    deployment.assert_clean()


def test_batches_are_as_large_as_the_threshold_while_there_are_enough_requests():
    """Between the moment all members know of all 8 and the first finish."""
    smallest = {}
    for threshold in (1, 5):
        deployment = Deployment([1, threshold])
        jobs = routed(deployment, [60] * 8, lambda uid: 0)
        while not all(member.home.live_requests == 8 for member in deployment.members):
            deployment.turn()
        known = len(deployment.batches[1])
        while not any(answer.finish for answer in deployment.answers.values()):
            deployment.turn()
        smallest[threshold] = min(deployment.batches[1][known:])
        assert len(deployment.batches[1]) > known + 20
        deployment.run()
        assert differences(deployment, jobs) == []
    assert smallest[1] < 5 <= smallest[5]


def test_the_order_of_events_changes_nothing_but_the_order():
    """The same requests under other interleavings: equal answers, different batches."""
    batches = set()
    for seed in range(4):
        deployment = Deployment([1, 3, 2], seed=seed)
        jobs = routed(deployment, [20] * 12, lambda uid: 0)
        deployment.run()
        assert differences(deployment, jobs) == []
        batches.add(tuple(map(tuple, deployment.batches)))
    assert len(batches) == 4


# Twins: each breaks one thing, and the checks above must see it.


@pytest.mark.parametrize("engine", MUTANTS)
def test_a_wrong_engine_is_seen(engine: type[TimedEngine]):
    scenario = Scenario(5, [1, 3], [70, 64], limits=Limits(16, 8), requests=32)
    assert broken(scenario) is None
    assert broken(scenario, engine=engine) is not None


class Drops(Deployment):
    """Loses the first frame that moves control."""

    lost = False

    def carry(self, sender: int, receiver: int) -> None:
        wire = self.wires[sender, receiver]
        if not self.lost and any(isinstance(message, HandOver) for message in wire[0]):
            wire.popleft()
            self.lost = True
        else:
            super().carry(sender, receiver)


class Duplicates(Deployment):
    """Delivers every other frame twice, the second time after the next one."""

    frames = 0

    def carry(self, sender: int, receiver: int) -> None:
        self.frames += 1
        wire = self.wires[sender, receiver]
        if self.frames % 2 == 0 and len(wire) > 1:
            wire.insert(2, wire[0])
        super().carry(sender, receiver)


class Reorders(Deployment):
    """Lets every frame be overtaken by the next one, if there is one."""

    def carry(self, sender: int, receiver: int) -> None:
        self.wires[sender, receiver].rotate(1)
        super().carry(sender, receiver)


@pytest.mark.parametrize("deployment", [Drops, Duplicates, Reorders])
def test_a_bad_link_is_seen(deployment: type[Deployment]):
    """Here nothing counts frames; the channels do, and have tests of their own."""
    scenario = Scenario(5, [1, 3, 2], [10_000] * 3, requests=32)
    assert broken(scenario) is None
    assert broken(scenario, deployment=deployment) is not None


WAITING = Scenario(11, [5, 40, 9], [10_000] * 3, requests=48, spread=600, aborts=0.2)
SCARCE = Scenario(12, [2, 20, 9], [64, 70, 64], requests=48, spread=600)


def test_thresholds_that_are_not_clamped_stall(monkeypatch: pytest.MonkeyPatch):
    assert broken(WAITING) is None
    monkeypatch.setattr(tokenrouter.subserver.thresholds, "fixed_table", lambda wanted: [wanted])
    assert "Stall: " in (broken(WAITING) or "")


class ScansWhatArrives(Subserver):
    """Looks for a batch only when a visit has changed, not when the clamp has."""

    touched = False

    def _dispatch(self, sender: int, message: Message) -> None:
        self.touched |= not isinstance(message, Live)
        super()._dispatch(sender, message)

    def launch(self) -> list[Work]:
        if not self.touched:
            self._idle = True
            return []
        work = super().launch()
        self.touched = bool(work)
        return work


class CountsTheBlocked(Subserver):
    """Keeps requests that wait for memory in A."""

    def _tell_home(self, home: int, message: object) -> None:
        if not isinstance(message, Blocked):
            super()._tell_home(home, message)


class NeverCountsDown(Subserver):
    """Believes that other homes have as many requests as they ever had."""

    def _dispatch(self, sender: int, message: Message) -> None:
        if isinstance(message, Live):
            most = max(message.requests, getattr(self, f"most_{sender}", 0))
            setattr(self, f"most_{sender}", most)
            message = Live(most, message.owned, message.tokens)
        super()._dispatch(sender, message)


@pytest.mark.parametrize(
    ("subserver", "scenario"),
    [(NeverCountsDown, WAITING), (CountsTheBlocked, SCARCE)],
)
def test_a_live_count_that_is_too_high_stalls(subserver, scenario: Scenario):
    assert broken(scenario) is None
    assert "Stall: " in (broken(scenario, subserver=subserver) or "")


def test_a_live_count_that_nobody_looks_at_stalls():
    """Four requests wait on member 1 for two more, which end without ever coming there."""
    for subserver in (Subserver, ScansWhatArrives):
        deployment = Deployment([1, 6], subserver=subserver)
        for uid, share in enumerate([1.0] * 4 + [0.0] * 2):
            route = Route("random", (0, 1), 0, share)
            length = 3 if share else 100
            deployment.submit(uid, [100 + uid], route, Sampling(length, ignore_eos=True))
        if subserver is Subserver:
            deployment.run()
            deployment.assert_clean()
        else:
            with pytest.raises(Stall):
                deployment.run()


def test_members_that_take_memory_from_older_visits_starve_each_other(
    monkeypatch: pytest.MonkeyPatch,
):
    assert broken(SCARCE) is None

    def anyone(needy: Visit, visits: object) -> object:
        others = [v for v in visits if v.resident and v is not needy]
        return iter(sorted(others, key=lambda visit: visit.uid))

    monkeypatch.setattr(tokenrouter.subserver.memory, "victims", anyone)
    assert broken(SCARCE) is not None


def test_opening_late_is_seen(monkeypatch: pytest.MonkeyPatch):
    """A home that hands over before it opens: control arrives nowhere."""
    plain = Subserver._post

    def last(self: Subserver, member: int, message: object) -> None:
        if isinstance(message, Open) and member != self.member:
            late.append((self, member, message))
            return
        plain(self, member, message)
        while late:
            plain(*late.pop())

    late: list[tuple[Subserver, int, Open]] = []
    monkeypatch.setattr(Subserver, "_post", last)
    assert broken(WAITING) is not None
