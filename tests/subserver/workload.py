"""Random requests for a deployment, what each must get, and the comparison."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from tests.plain_loop import Written
from tests.subserver.algorithms import HERE, Drafty
from tests.subserver.harness import ALPHABET, Deployment, text_of
from tests.subserver.reference import routed_loop
from tokenrouter.ipc.messages import Grammar, Route, Sampling


@dataclass(frozen=True)
class Job:
    """A request, when it arrives, and when its client gives up (turns; None: never)."""

    uid: int
    prompt: list[int]
    route: Route
    sampling: Sampling
    stream: bool
    arrival: float
    abort: float | None


@dataclass(frozen=True)
class Mix:
    """Bounds of the requests to make: a prompt and its output fit ``room`` tokens.

    ``spread``: turns in which they arrive; ``aborts``: share whose clients give up;
    ``grammars``: share that bring one.
    """

    count: int
    room: int = 40
    spread: int = 0
    aborts: float = 0.0
    members: int = 2
    grammars: float = 0.0


def make(rng: random.Random, mix: Mix, eos_ids: Sequence[Sequence[int]]) -> list[Job]:
    """Requests with ids in random order, on every kind of route."""
    uids = list(range(1, mix.count + 1))
    if rng.random() < 0.5:
        rng.shuffle(uids)
    return [_job(rng, mix, uid, eos_ids) for uid in uids]


def submit_all(deployment: Deployment, jobs: Iterable[Job]) -> None:
    """Schedule every arrival, and every abort."""
    for job in jobs:
        request = (job.uid, job.prompt, job.route, job.sampling, job.stream)
        deployment.at(job.arrival, partial(deployment.submit, *request))
        if job.abort is not None:
            deployment.at(job.abort, partial(deployment.abort, job.uid, job.route.home))


def expected(deployment: Deployment, job: Job) -> Written:
    """What the plain loop gives for ``job``."""
    eos_ids = {eos for member in job.route.members for eos in deployment.eos_ids[member]}
    return routed_loop(
        deployment.names, job.prompt, job.route, job.sampling, eos_ids, deployment.vocabulary
    )


def differences(deployment: Deployment, jobs: Iterable[Job]) -> list[str]:
    """How the answers differ from the plain loop; an aborted one may be cut anywhere."""
    found = []
    for job in jobs:
        want, got = expected(deployment, job), deployment.answers[str(job.uid)]
        if job.abort is not None and got.finish == BY_CLIENT:
            cut = len(got.tokens)
            same = (want.tokens[:cut], want.writers[:cut]) == (got.tokens, got.models)
        else:
            told = (got.tokens, got.models, got.hand_overs, got.finish)
            same = told == (want.tokens, want.writers, want.hand_overs, want.finish)
            same = same and (job.stream or got.outputs == 1)
        counts = [got.models.count(m) for m in range(len(deployment.names))]
        if not same or counts != got.member_tokens:
            found.append(f"{job}: expected {want}, got {got}")
    return found


BY_CLIENT = {"type": "abort", "message": "Aborted by the client"}


def _job(rng: random.Random, mix: Mix, uid: int, eos_ids: Sequence[Sequence[int]]) -> Job:
    prompt_length = rng.randint(1, max(mix.room // 2, 1))
    prompt = [rng.choice(ALPHABET) for _ in range(prompt_length)]
    if uid % 4 == 0:
        prompt = list(ALPHABET[:prompt_length])  # a beginning that many share
    route = _route(rng, mix.members)
    drafts = route.algorithm == f"{HERE}:Drafty"
    room = mix.room - prompt_length - (Drafty.scratch_tokens if drafts else 0)
    limit = rng.randint(0 if rng.random() < 0.05 else 1, room)
    if drafts:
        route.args["limit"] = limit
    sampling = Sampling(limit, ignore_eos=rng.random() < 0.7)
    if rng.random() < 0.3:
        sampling = _stopping(rng, prompt, route, sampling)
    if mix.grammars and rng.random() < mix.grammars:
        sampling = msgspec.structs.replace(sampling, grammar=Grammar("regex", "any"))
    arrival = rng.uniform(0, mix.spread)
    abort = arrival + rng.expovariate(1 / 300) if rng.random() < mix.aborts else None
    return Job(uid, prompt, route, sampling, rng.random() < 0.5, arrival, abort)


def _route(rng: random.Random, members: int) -> Route:
    everyone = tuple(range(members))
    some = tuple(sorted(rng.sample(everyone, rng.randint(1, members))))
    kinds = ["single", "cascade", "Wander", "Wander", "Bursts", "Bounce", *["Drafty"] * 3]
    kind = rng.choice(kinds + ["random", "entropy"] * 2 if members == 2 else kinds)
    threshold: float | None = None
    args: dict[str, Any] = {}
    route = everyone
    if kind == "single":
        route = (rng.choice(everyone),)
    elif kind in ("Wander", "Bursts", "Bounce", "Drafty"):
        route = some if rng.random() < 0.5 else everyone
        args = {"visits": list(route)}
        if kind == "Bounce":
            args["hops"] = rng.randint(1, 4)
        kind = f"{HERE}:{kind}"
    elif kind == "cascade" and rng.random() < 0.3:
        args = {"thresholds": [rng.random() for _ in everyone[1:]]}
    else:
        threshold = rng.choice([None, 0.0, 0.2, 0.6, 1.0])
    seed, sample = rng.randrange(3), rng.randrange(3)
    return Route(kind, route, rng.choice(route), threshold, args, seed, sample, True)


def _stopping(
    rng: random.Random, prompt: Sequence[int], route: Route, sampling: Sampling
) -> Sampling:
    """With stop strings or ids that occur in the output, often across two writers."""
    names = [f"m{m}" for m in range(max(route.members) + 1)]
    if route.algorithm in ("random", "entropy", "cascade"):
        names = [f"m{m}" for m in route.members]
    whole = routed_loop(names, prompt, route, Sampling(sampling.max_new_tokens, ignore_eos=True))
    if not whole.tokens:
        return sampling
    first = rng.randrange(len(whole.tokens))
    span = whole.tokens[first : first + rng.randint(1, 3)]
    if rng.random() < 0.3:
        return Sampling(sampling.max_new_tokens, stop_token_ids=(span[-1],))
    stops = (text_of(span), "never", text_of(whole.tokens[-2:]))
    return Sampling(sampling.max_new_tokens, stop=stops, ignore_eos=sampling.ignore_eos)
