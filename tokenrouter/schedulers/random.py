"""A coin per token: the large model writes it with probability p (R2R's ``random``)."""

from __future__ import annotations

from collections.abc import Sequence

from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step

SMALL, LARGE = 0, 1


class Random(RoutingScheduler):
    """``router_threshold`` is p (default 0.5): U < p sends the position to the large model.

    U is `Request.draw`, a function of (seed, prompt, sample index, position) only. The
    small model's token at a routed position is dropped; the large model writes one.
    """

    members_needed = 2
    threshold_range = (0.0, 1.0)

    def __init__(self, members: Sequence[str], router_threshold: float | None = None) -> None:
        super().__init__(members, router_threshold)
        self.probability = 0.5 if router_threshold is None else router_threshold

    def route(self, request: Request, step: Step) -> Decision:
        """Flip the coin of this position on the small model; hand back from the large."""
        if request.member == SMALL and request.draw() < self.probability:
            return Decision(0, LARGE)
        return Decision(1, SMALL)
