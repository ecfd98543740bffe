"""CITER (aiming-lab/CITER): a trained head tells how sure the small model can be."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import CiterConfidence, Declared
from tokenrouter.schedulers.trained import trained_file

SMALL, LARGE = 0, 1


class Citer(RoutingScheduler):
    """The large model writes a position where the head's confidence is below tau.

    The small model's token there is dropped. tau is ``router_threshold``; default 0.95, as in
    CITER's code (its README says 0.9).

    Args:
        head: the head's state_dict, by torch or as safetensors.
    """

    members_needed = 2
    threshold_range = (0.0, 1.0)

    def __init__(
        self, members: Sequence[str], router_threshold: float | None = None, head: str = ""
    ) -> None:
        super().__init__(members, router_threshold)
        self.tau = 0.95 if router_threshold is None else router_threshold
        self._signal = CiterConfidence(trained_file("head", head, "a trained CITER head"))

    def signals(self, member: int) -> Collection[Declared]:
        """The confidence in the small model's steps."""
        return (self._signal,) if member == SMALL else ()

    def route(self, request: Request, step: Step) -> Decision:
        """Ask the large model for one token where confidence is low."""
        if request.member == SMALL and not step.signals[self._signal.name] >= self.tau:
            return Decision(0, LARGE)
        return Decision(1, SMALL)
