"""Co-LLM (arXiv 2403.03870): the small model has learned itself when to defer."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import Declared, DeferralProbability

SMALL, LARGE = 0, 1


class CoLLM(RoutingScheduler):
    """The large model writes a position where the small one's deferral probability is above tau.

    The small model has one row more in its vocabulary, the last: the logit of deferring, which
    is no token. Its own token there is dropped. tau is ``router_threshold`` (default 0.5).
    """

    members_needed = 2
    threshold_range = (0.0, 1.0)

    def __init__(self, members: Sequence[str], router_threshold: float | None = None) -> None:
        super().__init__(members, router_threshold)
        self.tau = 0.5 if router_threshold is None else router_threshold

    def signals(self, member: int) -> Collection[Declared]:
        """The deferral probability of the small model's steps."""
        return (DeferralProbability(),) if member == SMALL else ()

    def route(self, request: Request, step: Step) -> Decision:
        """Ask the large model for one token where the small one defers."""
        if request.member == SMALL and not step.signals["deferral_probability"] <= self.tau:
            return Decision(0, LARGE)
        return Decision(1, SMALL)
