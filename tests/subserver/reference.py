"""The plain token-by-token loop that every routed run must equal (timed engines)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.subserver.harness import ALPHABET
from tokenrouter.ipc.messages import Route
from tokenrouter.schedulers.base import Request, Step
from tokenrouter.schedulers.registry import create
from tokenrouter.subserver.timed import context_of, entropy, next_token, top_probability


def routed_loop(
    names: Sequence[str], prompt: Sequence[int], route: Route, count: int
) -> tuple[list[int], list[int]]:
    """Tokens and their writers: each model recomputes everything at every step.

    Only for algorithms that keep no state and send nothing.
    """
    scheduler = create(route.algorithm, names, route.router_threshold, route.args)
    tokens = list(prompt)
    writers: list[int] = []
    member = route.home
    while len(writers) < count:
        context = context_of(tokens, seed=member)
        step = Step(
            (next_token(context, ALPHABET),),
            {"entropy": entropy(context), "top_probability": top_probability(context)},
        )
        request = Request(tokens, len(prompt), member, route.seed, route.sample)
        decision = scheduler.route(request, step)
        for token in step.tokens[: decision.keep]:
            tokens.append(token)
            writers.append(member)
        member = decision.to
    return tokens[len(prompt) :], writers
