"""Whoever writes goes on until the small model is unsure or the large one is sure: R-Stitch."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.arguments import choice
from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import (
    Declared,
    Entropy,
    NormalisedEntropy,
    Signal,
    TopProbability,
)

SMALL, LARGE = 0, 1
METRICS: dict[str, Signal] = {
    "maxp": TopProbability(),
    "entropy": Entropy(),
    "normalised_entropy": NormalisedEntropy(),
}


class RStitch(RoutingScheduler):
    """The small model writes until it is unsure; the large one until it is sure.

    Where the small model is unsure, its token is dropped and the large one takes over. The
    token at which the large one is sure is kept, and the small one goes on. Nobody drafts: the
    end of the output is where it would be without routing.

    Args:
        router_threshold: of ``metric``. There is no default: versions of the method differ.
        metric: a member is sure where its top probability is at least the threshold
            (``maxp``), or where its ``entropy``, in nats, or ``normalised_entropy``, in units
            of the largest possible one, is below it.
    """

    members_needed = 2
    threshold_range = (0.0, float("inf"))

    def __init__(
        self,
        members: Sequence[str],
        router_threshold: float | None = None,
        metric: str | None = None,
    ) -> None:
        super().__init__(members, router_threshold)
        self.metric = METRICS[choice("metric", metric, METRICS)]
        if router_threshold is None:
            raise ConfigError(f"router_threshold: r_stitch has no default for {metric}; give one")
        if metric != "entropy" and router_threshold > 1.0:
            raise ConfigError(
                f"router_threshold: r_stitch takes {metric} from 0 to 1, got {router_threshold!r}"
            )
        self.tau = router_threshold

    def signals(self, member: int) -> Collection[Declared]:
        """The metric, of both members."""
        return (self.metric,)

    def route(self, request: Request, step: Step) -> Decision:
        """Go to the member that sureness is to write the next token."""
        sure = self._is_sure(step.signals[self.metric.name])
        if request.member == SMALL:
            return Decision(1, SMALL) if sure else Decision(0, LARGE)
        return Decision(1, SMALL if sure else LARGE)

    def _is_sure(self, value: float) -> bool:
        high_is_sure = isinstance(self.metric, TopProbability)
        return value >= self.tau if high_is_sure else value < self.tau
