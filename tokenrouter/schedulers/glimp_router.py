"""The first token of a step tells who writes the step: GlimpRouter (2601.05110)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import Declared, TopLogits
from tokenrouter.schedulers.steps import BLANK_LINE, Delimiter

SMALL, LARGE = 0, 1
GLIMPSE = TopLogits(20)
ANSWER = b"answer"


@dataclass
class Place:
    """Where the current step begins, and whether the reasoning is over."""

    start: int = 0
    answering: bool = False


class GlimpRouter(RoutingScheduler):
    """The large model writes the steps of whose first token the small one is unsure.

    The small model proposes the first token of each step. If the entropy over its 20 most
    likely tokens, renormalised, reaches ``router_threshold`` (default 1.0, in nats), that token
    is dropped and the large model writes the step, up to and with ``delimiter`` (a blank line).
    Everything after ``think_end`` in the output is the large model's.

    Nobody drafts: the end of the output is where it would be without routing.
    """

    members_needed = 2
    verifiable = False  # positions of steps are kept on both members
    threshold_range = (0.0, float("inf"))

    def __init__(
        self,
        members: Sequence[str],
        router_threshold: float | None = None,
        delimiter: str = BLANK_LINE,
        think_end: str = "</think>",
    ) -> None:
        super().__init__(members, router_threshold)
        self.tau = 1.0 if router_threshold is None else router_threshold
        self.delimiter = Delimiter(delimiter)
        self.think_end = Delimiter(think_end, "think_end")

    def signals(self, member: int) -> Collection[Declared]:
        """The largest logits of the small model's steps."""
        return (GLIMPSE,) if member == SMALL else ()

    def start(self, request: Request) -> Place:
        """Before the first step."""
        return Place()

    def receive(self, request: Request, payload: bytes) -> None:
        """A step begins, or the answer."""
        request.state.start = len(request.tokens)
        request.state.answering = payload == ANSWER

    def route(self, request: Request, step: Step) -> Decision:
        """Look at the first token of a step on the small model, and for its end on both."""
        place, tokens, token = request.state, request.tokens, step.tokens[0]
        small = request.member == SMALL
        if small and len(tokens) == place.start and self._is_unsure(step):
            return Decision(0, LARGE)
        decode = self.vocabulary.decode
        if not place.answering:
            place.answering = self.think_end.completed(decode, tokens, request.prompt_length, token)
        if place.answering:
            return Decision(1, LARGE)
        if not self.delimiter.completed(decode, tokens, place.start, token):
            return Decision(1, request.member)
        place.start = len(tokens) + 1
        return Decision(1, SMALL)

    def send(self, request: Request, step: Step, decision: Decision) -> bytes:
        """Whether what follows is the answer."""
        return ANSWER if request.state.answering else b""

    def _is_unsure(self, step: Step) -> bool:
        return not entropy_of(step.signals[GLIMPSE.name]) < self.tau


def entropy_of(logits: Sequence[float]) -> float:
    """Entropy, in nats, of the softmax over ``logits`` alone, largest first."""
    weights = [math.exp(logit - logits[0]) for logit in logits]
    total = sum(weights)
    return (
        math.log(total)
        - sum(weight * (logit - logits[0]) for weight, logit in zip(weights, logits, strict=True))
        / total
    )
