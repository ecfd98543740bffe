"""The plain token-by-token loop that every routed run must equal (timed engines).

One request, no cache, no batch: each model recomputes everything at every step. It shares
with the runtime the algorithm under test and the function from contexts to tokens, and
nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tests.subserver.harness import ALPHABET, text_of
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.schedulers.base import Request, Step
from tokenrouter.schedulers.registry import create
from tokenrouter.subserver.timed import context_of, entropy, next_token, top_probability


@dataclass(frozen=True)
class Expected:
    """The answer: ``writers[i]`` wrote ``tokens[i]``."""

    tokens: list[int]
    writers: list[int]
    hand_overs: int
    finish: dict[str, Any]


def routed_loop(
    names: Sequence[str],
    prompt: Sequence[int],
    route: Route,
    sampling: Sampling,
    eos_ids: Collection[int] = (),
) -> Expected:
    """Run one request to its finish; ``eos_ids``: of the members of its route."""
    schedulers = [create(route.algorithm, names, route.router_threshold, route.args) for _ in names]
    requests: dict[int, Request] = {}
    tokens, writers = list(prompt), []
    member, payload, arrives, hand_overs = route.home, b"", True, 0
    while (finish := ending(tokens[len(prompt) :], sampling, eos_ids)) is None:
        scheduler = schedulers[member]
        if member not in requests:
            request = Request(list(prompt), len(prompt), member, route.seed, route.sample)
            request.state = scheduler.start(request)
            requests[member] = request
        request = requests[member]
        request.tokens = list(tokens)
        if arrives:
            scheduler.receive(request, payload)
        step = step_of(tokens, member)
        decision = scheduler.route(request, step)
        arrives = decision.to != member
        if arrives:
            payload = scheduler.send(request, step, decision)
        for token in step.tokens[: decision.keep]:
            tokens.append(token)
            writers.append(member)
        if arrives and ending(tokens[len(prompt) :], sampling, eos_ids) is None:
            hand_overs += 1
        member = decision.to
    return Expected(tokens[len(prompt) :], writers, hand_overs, finish)


def step_of(tokens: Sequence[int], member: int) -> Step:
    """What a step of ``member`` gives after ``tokens``."""
    context = context_of(tokens, seed=member)
    return Step(
        (next_token(context, ALPHABET),),
        {"entropy": entropy(context), "top_probability": top_probability(context)},
    )


def ending(
    output: Sequence[int], sampling: Sampling, eos_ids: Collection[int]
) -> dict[str, Any] | None:
    """Why ``output`` ends with its last token, if it does."""
    if len(output) >= sampling.max_new_tokens:
        return {"type": "length", "length": sampling.max_new_tokens}
    if not output:
        return None
    ends = [] if sampling.ignore_eos and sampling.grammar is None else [*eos_ids]
    if not sampling.ignore_eos:
        ends += sampling.stop_token_ids
    if output[-1] in ends:
        return {"type": "stop", "matched": output[-1]}
    for stop in sampling.stop:
        if stop in text_of(output):
            return {"type": "stop", "matched": stop}
    return None
