"""The plain token-by-token loop that every routed run must equal, over timed engines."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tests.plain_loop import Setting, Written, plain_loop
from tests.subserver.harness import ALPHABET, Characters, text_of
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.schedulers.base import Check, Vocabulary
from tokenrouter.schedulers.registry import create
from tokenrouter.schedulers.signals import Checks, Declared
from tokenrouter.subserver.certain import proposal
from tokenrouter.subserver.timed import (
    context_of,
    next_token,
    signal_value,
    token_probability,
    top_probability,
)


class TimedModel:
    """Member ``seed``, computing everything anew at every step."""

    def __init__(self, seed: int, alphabet: Sequence[int] = ALPHABET) -> None:
        self._seed, self._alphabet = seed, alphabet

    def step(
        self, tokens: Sequence[int], signals: Sequence[Declared]
    ) -> tuple[int, Mapping[str, Any]]:
        context = context_of(tokens, self._seed)
        token = next_token(context, self._alphabet)
        values = {s.name: signal_value(s, context) for s in signals if not isinstance(s, Checks)}
        if "proposals" in values:
            values["proposals"] = proposal(token, top_probability(context))
        return token, values

    def check(self, tokens: Sequence[int], draft: int) -> Check:
        context = context_of(tokens, self._seed)
        token = next_token(context, self._alphabet)
        return Check(token, token_probability(context, draft), token == draft)


def routed_loop(
    names: Sequence[str],
    prompt: Sequence[int],
    route: Route,
    sampling: Sampling,
    eos_ids: Collection[int] = (),
    vocabulary: Vocabulary | None = None,
) -> Written:
    """Run one request to its finish; ``eos_ids``: of the members of its route.

    Stop strings are those of `Characters`.
    """
    return plain_loop(
        [create(route.algorithm, names, route.router_threshold, route.args) for _ in names],
        [TimedModel(seed) for seed in range(len(names))],
        prompt,
        lambda output: ending(output, sampling, eos_ids),
        Setting(route.home, route.seed, route.sample, vocabulary or Characters()),
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
