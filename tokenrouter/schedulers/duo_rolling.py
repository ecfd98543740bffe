"""As ``rolling``, without an entropy and with an empty window at first: R2R's ``duo_rolling``."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tokenrouter.schedulers.arguments import whole_number
from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import Aleatoric, Declared
from tokenrouter.schedulers.windows import Rolling

SMALL, LARGE = 0, 1


class DuoRolling(RoutingScheduler):
    """After a small token: the large model writes where AU >= tau.

    After a large one it stays while the mean of the last AUs is at least tau, over at most
    ``window`` positions after the one where it was asked (`windows.Rolling`). AU is the small
    model's aleatoric uncertainty, at every position. tau is ``router_threshold`` (default
    2.275). The small model's token is dropped where the large one writes.
    """

    members_needed = 2

    def __init__(
        self, members: Sequence[str], router_threshold: float | None = None, window: int = 3
    ) -> None:
        super().__init__(members, router_threshold)
        self.tau = 2.275 if router_threshold is None else router_threshold
        self.window = whole_number("window", window, 1)

    def signals(self, member: int) -> Collection[Declared]:
        """The uncertainty of the small model's steps."""
        return (Aleatoric(),) if member == SMALL else ()

    def start(self, request: Request) -> Rolling:
        """As after a large token."""
        return Rolling(self.window, with_trigger=False)

    def route(self, request: Request, step: Step) -> Decision:
        """Look at the window on the small model; hand back from the large."""
        if request.member == SMALL and request.state.asks(step.signals["aleatoric"], self.tau):
            return Decision(0, LARGE)
        return Decision(1, SMALL)
