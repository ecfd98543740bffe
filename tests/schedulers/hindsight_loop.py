"""Hindsight by definition: one request at a time, with an algorithm and a rule in its own words."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.subserver.harness import ALPHABET, text_of
from tests.subserver.reference import ending
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.schedulers.base import Request
from tokenrouter.subserver.timed import (
    context_of,
    entropy,
    next_token,
    token_probability,
    top_probability,
)

Choose = Callable[[Sequence[int], int], int]
"""The member that writes after some tokens, of which so many are the prompt."""
EPSILON = 0.2
EOS = 199


@dataclass(frozen=True)
class Rule:
    """What the runtime is asked for, and who then writes, in words of its own."""

    algorithm: str
    threshold: float
    members: int
    choose: Choose
    verify: dict[str, Any]

    @property
    def route(self) -> Route:
        everyone = tuple(range(self.members))
        args = {"verify": self.verify}
        return Route(self.algorithm, everyone, 0, self.threshold, args, token_models=True)


def by_entropy(tokens: Sequence[int], prompt: int, threshold: float = 0.85) -> int:
    return int(entropy(context_of(tokens, 0)) >= threshold)


def by_cascade(tokens: Sequence[int], prompt: int) -> int:
    sure = (top_probability(context_of(tokens, level)) >= 0.3 for level in (0, 1))
    return next((level for level, each in enumerate(sure) if each), 2)


def by_coin(tokens: Sequence[int], prompt: int) -> int:
    request = Request(tokens, prompt, 0)
    return int(request.draw() < 0.15)


def rules(**verify: Any) -> list[Rule]:
    options = {"epsilon": EPSILON, **verify}
    return [
        Rule("entropy", 0.85, 2, by_entropy, options),
        Rule("random", 0.15, 2, by_coin, options),
        Rule("cascade", 0.3, 3, by_cascade, options),
    ]


@dataclass
class Loop:
    """The definition, one request at a time: ``tokens``, and the writer of each."""

    rule: Rule
    prompt: list[int]
    sampling: Sampling
    eos_ids: tuple[int, ...] = (EOS,)

    def __post_init__(self) -> None:
        self.tokens, self.writers = list(self.prompt), []
        self.verified = len(self.prompt)
        self.cuts = 0

    def run(self) -> Loop:
        verify, large = self.rule.verify, self.rule.members - 1
        while not self.over:
            member = self.rule.choose(self.tokens, len(self.prompt))
            if member == large:
                self.look_back() or self.write(large)
                self.verified = len(self.tokens)
                continue
            self.write(member)
            if self.over:
                if verify.get("final", True) and self.look_back():
                    self.verified = len(self.tokens)
            elif len(self.tokens) - self.verified >= verify.get("window", 1000):
                self.look_back() or self.write(large)
                self.verified = len(self.tokens)
        return self

    def look_back(self) -> bool:
        large = self.rule.members - 1
        for position in range(self.verified, len(self.tokens)):
            context = context_of(self.tokens[:position], large)
            if token_probability(context, self.tokens[position]) < self.rule.verify["epsilon"]:
                del self.tokens[position:], self.writers[position - len(self.prompt) :]
                self.write(large)
                self.cuts += 1
                return True
        return False

    def write(self, member: int) -> None:
        self.tokens.append(next_token(context_of(self.tokens, member), ALPHABET))
        self.writers.append(member)

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.prompt) :]

    @property
    def over(self) -> dict[str, Any] | None:
        return ending(self.output, self.sampling, self.eos_ids)


def loops(rule: Rule, count: int, seed: int, longest: int = 40) -> list[Loop]:
    """Requests with random prompts and lengths; some end at stop strings across writers."""
    rng = random.Random(seed)
    made = []
    for index in range(count):
        prompt = rng.choices(ALPHABET, k=rng.randint(1, 12))
        loop = Loop(rule, prompt, Sampling(rng.randint(1, longest))).run()
        if index % 3 == 0 and len(loop.output) > 3:
            at = rng.randrange(len(loop.output) - 2)
            stop = (text_of(loop.output[at : at + 2]), "never")
            loop = Loop(rule, prompt, replace_sampling(loop.sampling, stop)).run()
        made.append(loop)
    return made


def replace_sampling(sampling: Sampling, stop: tuple[str, ...]) -> Sampling:
    return Sampling(sampling.max_new_tokens, stop=stop)
