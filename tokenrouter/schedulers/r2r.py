"""R2R (arXiv 2505.21600): a trained router tells which positions are critical."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import Declared, RouterScore, Scored
from tokenrouter.schedulers.trained import trained_file

SMALL, LARGE = 0, 1


class R2R(RoutingScheduler):
    """The large model writes a position that the router gives a probability p >= tau.

    The small model's token there is dropped. tau is ``router_threshold``; default: the one
    saved with the router.

    Args:
        router: a checkpoint in R2R's layout (``.pt``) or in ours.
    """

    members_needed = 2
    threshold_range = (0.0, 1.0)

    def __init__(
        self, members: Sequence[str], router_threshold: float | None = None, router: str = ""
    ) -> None:
        super().__init__(members, router_threshold)
        self._signal = RouterScore(trained_file("router", router, "a trained R2R router"))

    def signals(self, member: int) -> Collection[Declared]:
        """The router's score of the small model's steps."""
        return (self._signal,) if member == SMALL else ()

    def scored(self, step: Step) -> Scored:
        """The probability of being critical, and tau."""
        scored: Scored = step.signals[self._signal.name]
        tau = self.router_threshold
        return Scored(scored.score, scored.threshold if tau is None else tau)

    def route(self, request: Request, step: Step) -> Decision:
        """Ask the large model for one token where it is critical."""
        if request.member == SMALL:
            p, tau = self.scored(step)
            if not p < tau:  # so that no number goes to the large model
                return Decision(0, LARGE)
        return Decision(1, SMALL)
