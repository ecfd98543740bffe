"""Members die and return at any moment: who is not concerned notices nothing, nothing is left."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.subserver.builders import make_submit, route
from tests.subserver.harness import Stall
from tests.subserver.mortal import Mortal
from tests.subserver.workload import Job, Mix, differences, make, submit_all
from tokenrouter.ipc.messages import DETOKENIZER, FRONT_END
from tokenrouter.ipc.supervision import Up
from tokenrouter.subserver.batching import Limits
from tokenrouter.subserver.loop import Subserver

pytestmark = pytest.mark.timeout(60)
ROOM = 32
LATER = 100_000
sizes = settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def broken(
    seed: int, members: int, pool: int, eager: bool, deaths: int, **options: Any
) -> str | None:
    """How a deployment whose members die failed, if it did."""
    rng = random.Random(seed)
    deployment = Mortal(
        [rng.choice([1, 2, 5, 40]) for _ in range(members)],
        pools=pool, limits=Limits(64, rng.choice([2, 512])), eager=eager, seed=seed,
        eos_ids=[(199 - m,) for m in range(members)], **options,
    )  # fmt: skip
    jobs = make(rng, Mix(40, ROOM, 1500, 0.2, members), deployment.eos_ids)
    submit_all(deployment, jobs)
    for _ in range(deaths):
        victim = rng.randrange(members)
        deployment.at(rng.uniform(0, 2000), partial(deployment.kill, victim))
    try:
        deployment.run(limit=60_000)
        deployment.assert_clean()
        return _judge(deployment, jobs)
    except (Stall, AssertionError, IndexError, KeyError) as error:
        return f"{type(error).__name__}: {error}"


def _judge(deployment: Mortal, jobs: list[Job]) -> str | None:
    failed = []
    for job in jobs:
        finish = deployment.answers[str(job.uid)].finish or {}
        if finish.get("status_code") == 503:
            assert deployment.victims.intersection(job.route.members), f"{job} had no cause to fail"
            failed.append(job)
    whole = [job for job in jobs if job not in failed]
    again = [replace(job, uid=job.uid + LATER, arrival=0, abort=None) for job in failed]
    submit_all(deployment, again)
    deployment.run(limit=60_000)
    deployment.assert_clean()
    return next(iter(differences(deployment, [*whole, *again])), None)


cases = given(
    st.integers(0, 2**32), st.integers(1, 4), st.sampled_from([ROOM, 100, 100_000]),
    st.booleans(), st.integers(1, 4),
)  # fmt: skip


@settings(sizes, max_examples=20)
@cases
def test_others_go_on_and_what_failed_can_be_asked_for_again(
    seed: int, members: int, pool: int, eager: bool, deaths: int
):
    assert broken(seed, members, pool, eager, deaths) is None


@pytest.mark.slow
@settings(sizes, max_examples=150)
@cases
def test_and_so_they_do_many_times(seed: int, members: int, pool: int, eager: bool, deaths: int):
    assert broken(seed + 1, members, pool, eager, deaths) is None


class KeepsVisits(Subserver):
    """Leaves the visits of a dead home where they are."""

    def _lost(self, process: int) -> None:
        self._told.pop(process, None)
        self.home.lost(process)


class KeepsRequests(Subserver):
    """Goes on with requests whose member is dead."""

    def _lost(self, process: int) -> None:
        lost, self.home.lost = self.home.lost, lambda process: None
        super()._lost(process)
        self.home.lost = lost


class RemembersLive(Subserver):
    """Counts a dead home's requests for ever."""

    def _lost(self, process: int) -> None:
        others = dict(self.home._others)
        super()._lost(process)
        self.home._others.update(others)


class TellsNobody(Subserver):
    """Does not take a member back."""

    def _returned(self, up: Up) -> None:
        self._told[up.process] = self.home.live


@pytest.mark.parametrize("mutant", [KeepsVisits, KeepsRequests, RemembersLive, TellsNobody])
def test_these_checks_fail_for_a_member_that_does_not_clean_up(mutant: type[Subserver]):
    found = [broken(seed, 3, 100, False, 3, subserver=mutant) for seed in range(12)]
    assert any(found)


def test_a_dead_front_end_takes_its_requests_along():
    deployment = Mortal([1, 1], pools=40)
    for uid in range(1, 7):
        submit = make_submit(uid, to=route(0, 1))
        deployment.submit(uid, submit.prompt, submit.route, submit.sampling)
    for _ in range(12):
        deployment.turn()
    assert len(deployment.members[0].home) > 0
    for member in (0, 1):
        deployment.members[member]._lost(DETOKENIZER)
    assert len(deployment.members[0].home) > 0, "who decodes is no concern of a home"
    for member in (0, 1):
        deployment.members[member]._lost(FRONT_END)
    assert len(deployment.members[0].home) == 0
    deployment.run()
    deployment.assert_clean()
    finishes = [answer.finish or {} for answer in deployment.answers.values()]
    assert {finish.get("status_code") for finish in finishes} <= {503, None}
