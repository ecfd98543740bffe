"""Ask the large model where unsure, and let it go on until that is over: R2R's ``rolling``."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tokenrouter.schedulers.arguments import whole_number
from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import Aleatoric, Declared, Entropy
from tokenrouter.schedulers.windows import Rolling

SMALL, LARGE = 0, 1
LEAST_ENTROPY = 0.02


class RollingRouting(RoutingScheduler):
    """After a small token: the large model writes where AU >= tau and H >= 0.02 nats.

    After a large one it stays while the mean of the last AUs is at least tau, over at most
    ``window`` positions, of which the first is the one where it was asked (`windows.Rolling`).
    AU is the small model's aleatoric uncertainty, H its entropy, both at every position. tau
    is ``router_threshold`` (default 2.275). The small model's token is dropped where the large
    one writes.
    """

    members_needed = 2
    with_trigger = True
    """Whether the window begins where it was asked, or with the position after."""

    def __init__(
        self, members: Sequence[str], router_threshold: float | None = None, window: int = 3
    ) -> None:
        super().__init__(members, router_threshold)
        self.tau = 2.275 if router_threshold is None else router_threshold
        self.window = whole_number("window", window, 1)

    def signals(self, member: int) -> Collection[Declared]:
        """Uncertainty and entropy of the small model's steps."""
        return (Aleatoric(), Entropy()) if member == SMALL else ()

    def start(self, request: Request) -> Rolling:
        """As after a large token."""
        return Rolling(self.window, self.with_trigger)

    def route(self, request: Request, step: Step) -> Decision:
        """Look at the window on the small model; hand back from the large."""
        if request.member == LARGE:
            return Decision(1, SMALL)
        asks = request.state.asks(step.signals["aleatoric"], self.tau, self.certain(step))
        return Decision(0, LARGE) if asks else Decision(1, SMALL)

    def certain(self, step: Step) -> bool:
        """Whether the large model is not asked, whatever the small one's uncertainty."""
        return bool(step.signals["entropy"] < LEAST_ENTROPY)
