"""Route where the small model is unsure: R2R's ``entropy`` strategy (thu-nics/R2R)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import Declared, Entropy

SMALL, LARGE = 0, 1


class EntropyRouting(RoutingScheduler):
    """The large model writes a position where the small one's entropy H >= tau.

    H is in nats, over the full softmax of the raw logits; tau is ``router_threshold``
    (default 0.45). The small model's token there is dropped.
    """

    members_needed = 2
    threshold_range = (0.0, float("inf"))

    def __init__(self, members: Sequence[str], router_threshold: float | None = None) -> None:
        super().__init__(members, router_threshold)
        self.tau = 0.45 if router_threshold is None else router_threshold

    def signals(self, member: int) -> Collection[Declared]:
        """The entropy of the small model's steps."""
        return (Entropy(),) if member == SMALL else ()

    def route(self, request: Request, step: Step) -> Decision:
        """Ask the large model for one token where the small one is unsure."""
        if request.member == SMALL and not step.signals["entropy"] < self.tau:
            return Decision(0, LARGE)
        return Decision(1, SMALL)
