"""The small model writes, the large one takes back what it finds unlikely: BiLD (2302.07863)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from tokenrouter.schedulers.arguments import flag, number, whole_number
from tokenrouter.schedulers.base import Check, Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import Checks, Declared, TopProbability

SMALL, LARGE = 0, 1


class BiLD(RoutingScheduler):
    """Drafts of the small model, until it is unsure; rolled back by the large one.

    The small model drafts until its top probability is below ``router_threshold`` (default 0.6;
    that token is dropped) or there are ``longest`` drafts. One pass of the large model
    checks them. The first with -ln p(draft) > ``rollback`` is taken back with all after it, and
    the large model's own token written there; without one, its next token is appended.
    Then the small model goes on. Probabilities are those of the raw logits.

    A draft that would end the output goes to the large model at once. It ends it if it
    stays. What the large model wrote after it is dropped.

    Args:
        official: as the official code has it: the large model writes the first token of the
            output, and one more token after a rollback.
    """

    members_needed = 2
    threshold_range = (0.0, 1.0)
    drafts = True

    def __init__(
        self,
        members: Sequence[str],
        router_threshold: float | None = None,
        rollback: float = 5.0,
        longest: int = 10,
        official: bool = False,
    ) -> None:
        super().__init__(members, router_threshold)
        self.fallback = 0.6 if router_threshold is None else router_threshold
        self.likely = math.exp(-number("rollback", rollback, 0.0))
        self.longest = whole_number("longest", longest, 1)
        self.official = flag("official", official)

    def signals(self, member: int) -> Collection[Declared]:
        """How sure the small model is; what the large one makes of drafts."""
        return (TopProbability(),) if member == SMALL else (Checks(),)

    def route(self, request: Request, step: Step) -> Decision:
        """Draft on the small model; judge the drafts on the large."""
        return self._draft(request, step) if request.member == SMALL else self._judge(step.checks)

    def _draft(self, request: Request, step: Step) -> Decision:
        drafts = request.drafts
        sure = step.signals["top_probability"] >= self.fallback
        if not sure or (self.official and request.position == 0):
            return Decision(0, LARGE, drafts=drafts)
        drafts += 1
        full = step.ends or drafts == self.longest
        return Decision(1, LARGE if full else SMALL, drafts=drafts)

    def _judge(self, checks: Sequence[Check]) -> Decision:
        for index, check in enumerate(checks):
            if not check.probability >= self.likely:
                return Decision(1, LARGE if self.official else SMALL, cut=len(checks) - index)
        return Decision(1, SMALL)
