"""R2R's ``neural_rolling`` strategy: once on the large model, stay while a mean is critical."""

from __future__ import annotations

from collections.abc import Sequence

from tokenrouter.schedulers.arguments import whole_number
from tokenrouter.schedulers.base import Decision, Request, Step
from tokenrouter.schedulers.r2r import LARGE, R2R, SMALL
from tokenrouter.schedulers.windows import Rolling


class NeuralRolling(R2R):
    """After a small token: the large model writes where p >= tau.

    After a large one it stays while the mean of the last p is at least tau, over at most
    ``window`` positions, of which the first is the one where it was asked (`windows.Rolling`).
    p is the router's, of the small model's step at every position.

    Args:
        router: as `R2R`'s.
        window: positions in the mean.
    """

    def __init__(
        self,
        members: Sequence[str],
        router_threshold: float | None = None,
        router: str = "",
        window: int = 3,
    ) -> None:
        super().__init__(members, router_threshold, router)
        self._window = whole_number("window", window, 1)

    def start(self, request: Request) -> Rolling:
        """As after a large token."""
        return Rolling(self._window, with_trigger=True)

    def route(self, request: Request, step: Step) -> Decision:
        """Look at the window on the small model; hand back from the large."""
        if request.member == LARGE:
            return Decision(1, SMALL)
        asks = request.state.asks(*self.scored(step))
        return Decision(0, LARGE) if asks else Decision(1, SMALL)
