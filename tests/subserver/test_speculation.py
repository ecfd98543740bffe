"""Speculative decoding in whole deployments: greedy answers are those of a loop without drafts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.subserver.harness import EOS, Deployment, text_of
from tests.subserver.reference import ending
from tests.subserver.workload import BY_CLIENT, Job, submit_all
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.schedulers.base import Request
from tokenrouter.schedulers.speculative import Speculative
from tokenrouter.subserver.batching import Limits
from tokenrouter.subserver.timed import (
    TimedEngine,
    context_of,
    next_token,
    token_probability,
    top_probability,
)

ALPHABET = (120, 160, EOS)
"""So few that the small model often finds what the large one would write."""
ROOM = 48
ALPHAS = {"chow": 0.5, "diff": 0.2, "opt": 0.2, "token_v1": 0.2, "token_v2": 0.2, "token_v3": 0.3}


class Forgetful(Speculative):
    """Does not say which laws its drafts came from."""

    def receive(self, request: Request, payload: bytes) -> None:
        if request.member == 0:
            super().receive(request, payload)


class FewTokens(TimedEngine):
    """Writes no others."""

    def __init__(self, step_s: Any, alphabet: Sequence[int], *args: Any, **options: Any) -> None:
        super().__init__(step_s, ALPHABET, *args, **options)


def small_stays(rule: str, alpha: float, tokens: Sequence[int]) -> bool:
    """Whether the small model writes the next token, by the papers' rules for certain laws."""
    small, large = (context_of(tokens, seed=member) for member in (0, 1))
    draft = next_token(small, ALPHABET)
    if draft == next_token(large, ALPHABET):
        return True
    q, p, of_draft = top_probability(small), top_probability(large), token_probability(large, draft)
    return {
        "exact": False,
        "chow": q >= 1 - alpha,
        "diff": q >= p - alpha,
        "opt": q >= p - alpha,
        "token_v1": q >= p - alpha,
        "token_v2": of_draft >= p - alpha,
        "token_v3": of_draft >= p * (1 - alpha),
    }[rule]


def plain(job: Job, eos_ids: Sequence[int]) -> tuple[list[int], dict[str, Any]]:
    """Token by token: the small model's where it stays, else the large one's."""
    rule = job.route.args.get("rule", "exact")
    output: list[int] = []
    while (finish := ending(output, job.sampling, eos_ids)) is None:
        tokens = [*job.prompt, *output]
        writer = 0 if small_stays(rule, job.route.router_threshold or 0.0, tokens) else 1
        output.append(next_token(context_of(tokens, seed=writer), ALPHABET))
    return output, finish


def jobs_of(rng: random.Random, count: int, rule: str, aborts: float = 0.0) -> list[Job]:
    jobs = []
    for uid in range(1, count + 1):
        args = {"rule": rule, "draft_length": rng.randint(1, 6), "adaptive": rng.random() < 0.5}
        seed = rng.randrange(9)
        route = Route("speculative", (0, 1), 0, ALPHAS.get(rule), args, seed, token_models=True)
        prompt = [rng.choice(ALPHABET) for _ in range(rng.randint(1, 12))]
        stop = tuple(text_of(rng.choices(ALPHABET[:2], k=6)) for _ in range(rng.choice((0, 0, 2))))
        limit = rng.randint(0 if uid % 9 == 0 else 1, ROOM - len(prompt))
        sampling = Sampling(limit, top_k=1, ignore_eos=rng.random() < 0.8, stop=stop)
        abort = rng.uniform(0, 1500) if rng.random() < aborts else None
        jobs.append(Job(uid, prompt, route, sampling, rng.random() < 0.5, 0, abort))
    return jobs


def assert_plain(deployment: Deployment, jobs: Sequence[Job]) -> None:
    for job in jobs:
        tokens, finish = plain(job, deployment.eos_ids[0])
        got = deployment.answers[str(job.uid)]
        if job.abort is not None and got.finish == BY_CLIENT:
            assert got.tokens == tokens[: len(got.tokens)]
        else:
            assert (got.tokens, got.finish) == (tokens, finish), job


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rule", ["exact", *ALPHAS])
def test_greedy_answers_are_those_without_drafts(rule: str, seed: int):
    """With memory, slots and chunks of every size, and clients that give up."""
    rng = random.Random(f"{rule}{seed}")
    pools: list[int] = rng.choice(([100_000] * 2, [3 * ROOM, 4 * ROOM], [ROOM, 2 * ROOM]))
    deployment = Deployment(
        rng.choice(([1, 1], [1, 6], [40, 3])), pools=pools, max_visits=rng.choice((3, 64)),
        limits=Limits(rng.choice((3, 64)), rng.choice((1, 3, 512))), eager=seed % 2 == 0,
        seed=seed, engine=FewTokens,
    )  # fmt: skip
    jobs = jobs_of(rng, 24, rule, aborts=0.2)
    submit_all(deployment, jobs)
    deployment.run()
    deployment.assert_clean()
    assert_plain(deployment, jobs)


@pytest.mark.parametrize("rule", ["exact", "opt"])
def test_so_they_are_where_drafts_and_checks_are_evicted(rule: str):
    deployment = Deployment(
        [1, 3], pools=[2 * ROOM] * 2, limits=Limits(64, 2), seed=3, engine=FewTokens
    )
    jobs = jobs_of(random.Random(5), 40, rule)
    submit_all(deployment, jobs)
    deployment.run()
    deployment.assert_clean()
    assert_plain(deployment, jobs)
    assert all(member.memory.evictions > 2 for member in deployment.members)


def test_rounds_are_long_where_models_agree():
    """Else the tests above would say little: drafts stay, and are replaced."""
    deployment = Deployment([1, 1], engine=FewTokens)
    jobs = jobs_of(random.Random(1), 40, "exact")
    submit_all(deployment, jobs)
    deployment.run()
    models = [model for answer in deployment.answers.values() for model in answer.models]
    assert 0.2 < models.count(0) / len(models) < 0.5
    hand_overs = sum(answer.hand_overs for answer in deployment.answers.values())
    assert hand_overs < 1.5 * len(models)


def test_the_chosen_law_is_asked_of_the_algorithm():
    """Proposals that do not fit the drafts end their request, and no other."""
    deployment = Deployment([1, 1], engine=FewTokens)
    route = Route(f"{__name__}:Forgetful", (0, 1), 0, token_models=True)
    deployment.submit(1, [120], route, Sampling(9, top_k=1))
    deployment.run()
    finish = deployment.answers["1"].finish or {}
    assert "0 proposals for 3 drafts" in finish["message"]
    deployment.assert_clean()
