"""Whole timed deployments that serve one algorithm, for its exactness and its cleanliness.

What is served must equal the plain loop in every token, writer, hand-over and finish, whatever
the order of events, chunks, evictions, aborts and deaths; afterwards every pool is full.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.plain_loop import Written
from tests.subserver.engines import PrefixCache
from tests.subserver.harness import ALPHABET, Deployment, text_of
from tests.subserver.mortal import Mortal
from tests.subserver.reference import routed_loop
from tests.subserver.workload import Job, differences, expected, submit_all
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.schedulers.base import Vocabulary
from tokenrouter.subserver.batching import Limits
from tokenrouter.subserver.engine import Visit
from tokenrouter.subserver.timed import TimedEngine

ROOM = 44
"""Tokens that one request may need, scratch included."""
LATER = 100_000
EOS_IDS = ((198,), (199,))

Moment = Callable[[Visit], bool]
"""Whether a visit is where something is to happen to it."""


@dataclass
class Steps:
    """The vocabulary of a text of steps: one token in six is, or has, a line end or two.

    One in three is a digit.
    """

    _special: Mapping[int, str] = field(
        default_factory=lambda: {
            1: "\n", 2: "\n", 3: "e\n", 4: "e\n\nN", 5: "\n\n",
            **{10 + digit: str(digit) for digit in range(10)},
        }
    )  # fmt: skip

    def encode(self, text: str) -> list[int]:
        return list(map(ord, text))

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self._special.get(each % 30, chr(each)) for each in ids)


@dataclass(frozen=True)
class Served:
    """An algorithm, with several settings of it: of (threshold, arguments).

    ``scratch``: tokens that it reads at most. ``engine``: another than the timed one.
    ``moments``: where an abort, a death or an eviction is to leave nothing behind.
    ``takes_back``: whether it does, often.
    """

    algorithm: str
    settings: Sequence[tuple[float | None, Mapping[str, Any]]]
    scratch: int = 0
    vocabulary: Vocabulary | None = None
    engine: type[TimedEngine] | None = None
    moments: Sequence[Moment] = ()
    takes_back: bool = False

    def jobs(self, rng: random.Random, count: int, spread: float, aborts: float) -> list[Job]:
        """Requests in random order, of all settings; some stop at strings or at ends."""
        uids = rng.sample(range(1, count + 1), count)
        return [self._job(rng, uid, spread, aborts) for uid in uids]

    def _job(self, rng: random.Random, uid: int, spread: float, aborts: float) -> Job:
        threshold, args = self.settings[uid % len(self.settings)]
        route = Route(
            self.algorithm, (0, 1), 0, threshold, dict(args), rng.randrange(3), 0, token_models=True
        )
        prompt = [rng.choice(ALPHABET) for _ in range(rng.randint(1, 9))]
        if uid % 4 == 0:
            prompt = list(ALPHABET[: len(prompt)])
        limit = rng.randint(1, ROOM - self.scratch - len(prompt))
        sampling = Sampling(limit, ignore_eos=rng.random() < 0.6)
        if self.vocabulary is None and rng.random() < 0.4:
            whole = routed_loop(["m0", "m1"], prompt, route, Sampling(limit, ignore_eos=True))
            first = rng.randrange(limit)
            stop = text_of(whole.tokens[first : first + rng.randint(1, 3)])
            sampling = Sampling(limit, ignore_eos=True, stop=(stop,))
        arrival = rng.uniform(0, spread)
        abort = arrival + rng.expovariate(1 / 150) if rng.random() < aborts else None
        return Job(uid, prompt, route, sampling, rng.random() < 0.5, arrival, abort)

    def deploy(self, seed: int, scarce: bool, kind: type[Deployment] = Deployment) -> Deployment:
        """Two members; with little or much of what requests share."""
        rng = random.Random(seed)
        return kind(
            [rng.choice([1, 2, 5, 30]), rng.choice([1, 3, 9])],
            pools=[ROOM + rng.randint(0, 25), ROOM + rng.randint(0, 25)] if scarce else 10_000,
            limits=Limits(rng.choice([3, 16]), rng.choice([2, 7])) if scarce else Limits(256, 512),
            eager=rng.random() < 0.5,
            seed=seed,
            engine=self.engine or rng.choice([PrefixCache if scarce else TimedEngine, TimedEngine]),
            eos_ids=EOS_IDS,
            vocabulary=self.vocabulary,
        )


def assert_exact(served: Served, seed: int, scarce: bool, requests: int = 40) -> list[Written]:
    """Serve random requests and compare; returns what they were to give.

    Both members write, and hand over often enough for the comparison to mean something.
    """
    deployment = served.deploy(seed, scarce)
    rng = random.Random(seed)
    jobs = served.jobs(rng, requests, 100 if scarce else 0, 0.2 if scarce else 0.0)
    submit_all(deployment, jobs)
    deployment.run()
    deployment.assert_clean()
    assert differences(deployment, jobs) == []
    wanted = [expected(deployment, job) for job in jobs]
    written = [member for each in wanted for member in each.writers]
    assert min(written.count(0), written.count(1)) >= requests
    assert sum(each.hand_overs for each in wanted) >= requests
    if scarce:
        assert sum(member.memory.evictions for member in deployment.members) > 0
    if served.takes_back:
        assert sum(each.taken_back for each in wanted) > 20
    return wanted


def assert_clean_after_aborts(served: Served, moment: Moment, times: int = 6) -> None:
    """Abort requests exactly when a visit of theirs is at ``moment``; others go on."""
    deployment = served.deploy(1, scarce=False)
    jobs = served.jobs(random.Random(2), 30, 0, 0.0)
    submit_all(deployment, jobs)
    aborted: set[int] = set()
    while deployment.turn():
        if len(aborted) < times and (found := _at(deployment, moment, aborted)):
            aborted.add(found)
            deployment.abort(found, 0)
    assert len(aborted) == times, "the moment comes"
    assert deployment.unfinished == 0
    deployment.assert_clean()
    told = [replace(job, abort=0.0) if job.uid in aborted else job for job in jobs]
    assert differences(deployment, told) == []


def assert_clean_after_deaths(served: Served, moment: Moment) -> None:
    """Each member dies when a visit is at ``moment``; what failed gives the same later."""
    for victim in (0, 1):
        deployment = served.deploy(3 + victim, scarce=False, kind=Mortal)
        assert isinstance(deployment, Mortal)
        jobs = served.jobs(random.Random(4), 20, 0, 0.0)
        submit_all(deployment, jobs)
        while deployment.turn():
            if not deployment.victims and _at(deployment, moment, set()):
                deployment.kill(victim)
        assert deployment.victims == {victim}, "the moment comes"
        deployment.assert_clean()
        failed = {rid for rid, a in deployment.answers.items() if "status_code" in a.finish}
        assert failed
        again = [replace(j, uid=j.uid + LATER, arrival=0) for j in jobs if str(j.uid) in failed]
        submit_all(deployment, again)
        deployment.run()
        deployment.assert_clean()
        whole = [job for job in jobs if str(job.uid) not in failed]
        assert differences(deployment, [*whole, *again]) == []


def evictions_at(served: Served, moment: Moment, monkeypatch: Any) -> int:
    """How many visits are evicted at ``moment`` in runs with scarce memory, all exact."""
    from tokenrouter.subserver.memory import Memory

    plain, found = Memory._release, []

    def release(self: Memory, visit: Visit) -> None:
        if visit.computed and moment(visit):
            found.append(visit.uid)
        plain(self, visit)

    monkeypatch.setattr(Memory, "_release", release)
    for seed in range(3):
        assert_exact(served, seed, scarce=True)
    return len(found)


def _at(deployment: Deployment, moment: Moment, besides: set[int]) -> int | None:
    for member in deployment.members:
        for visit in member.visits:
            if visit.uid not in besides and moment(visit):
                return visit.uid
    return None


def beginning(served: Served, setting: int, prompt: Sequence[int], count: int) -> list[int]:
    """The first ``count`` writers' marks and tokens, ``2 * token + writer``, of the plain loop.

    The output is longer: its end, which algorithms that draft may notice ahead, is far.
    """
    threshold, args = served.settings[setting]
    route = Route(served.algorithm, (0, 1), 0, threshold, dict(args))
    sampling = Sampling(count + 60, ignore_eos=True)
    written = routed_loop(["m0", "m1"], prompt, route, sampling, (), served.vocabulary)
    return [2 * t + w for t, w in zip(written.tokens, written.writers, strict=True)][:count]


def drafting(visit: Visit) -> bool:
    """It has drafts."""
    return visit.request.drafts > 1


def reading_scratch(visit: Visit) -> bool:
    """It is to read what is no output."""
    return visit.scratch > 0


def on_a_long_run(visit: Visit) -> bool:
    """The large member has written some tokens in a row."""
    return visit.request.member == 1 and visit.control and visit.run > 1
