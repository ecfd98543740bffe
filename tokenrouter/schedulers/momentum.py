"""Route by a running share of sure positions: R2R's ``momentum`` strategy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import Aleatoric, Declared

SMALL, LARGE = 0, 1
KEPT, NEW = 0.7, 0.3
AFTER_SMALL, AFTER_LARGE = 0.3, 0.7
"""Momentum up to which the large model writes, by the writer of the token before."""


@dataclass
class Momentum:
    """Of a request, on the small member."""

    value: float = 0.0
    after_large: bool = True

    def asks(self, sure: bool) -> bool:
        """Whether the large model writes a position where the small one is ``sure`` or not."""
        self.value = KEPT * self.value + NEW * sure
        self.after_large = self.value <= (AFTER_LARGE if self.after_large else AFTER_SMALL)
        return self.after_large


class MomentumRouting(RoutingScheduler):
    """The large model writes while the momentum m of sureness is low.

    At every position m becomes 0.7 m + 0.3 [AU < tau], with the small model's aleatoric
    uncertainty there. The large model writes it if m <= 0.3, or m <= 0.7 where it wrote the
    token before. m starts at 0 as after a large token, so the large model writes at least the
    first three tokens. tau is ``router_threshold`` (default 2.275). The small model's token
    is dropped where the large one writes.
    """

    members_needed = 2

    def __init__(self, members: Sequence[str], router_threshold: float | None = None) -> None:
        super().__init__(members, router_threshold)
        self.tau = 2.275 if router_threshold is None else router_threshold

    def signals(self, member: int) -> Collection[Declared]:
        """The uncertainty of the small model's steps."""
        return (Aleatoric(),) if member == SMALL else ()

    def start(self, request: Request) -> Momentum:
        """No momentum yet."""
        return Momentum()

    def route(self, request: Request, step: Step) -> Decision:
        """Update the momentum on the small model; hand back from the large."""
        if request.member == SMALL and request.state.asks(step.signals["aleatoric"] < self.tau):
            return Decision(0, LARGE)
        return Decision(1, SMALL)
