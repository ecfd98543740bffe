"""R2R's ``neural_rolling`` strategy: once on the large model, stay while a mean is critical."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Decision, Request, Step
from tokenrouter.schedulers.r2r import LARGE, R2R, SMALL


@dataclass(slots=True)
class Rolling:
    """``large``: it writes. ``window``: the small model's last scores since it does."""

    window: deque[float]
    large: bool = True


class NeuralRolling(R2R):
    """The large model takes over at p >= tau, and writes on while the mean of its window is.

    p is the router's, of the small model's step at every position. A request begins on the
    large model, with an empty window; taking over clears the window and puts p in.

    Args:
        router: as `R2R`'s.
        window: scores in the mean.
    """

    def __init__(
        self,
        members: Sequence[str],
        router_threshold: float | None = None,
        router: str = "",
        window: int = 3,
    ) -> None:
        super().__init__(members, router_threshold, router)
        if window < 1 or window != int(window):
            raise ConfigError(f"algorithm_args.window: must be 1, 2, 3 ..., got {window!r}")
        self._window = int(window)

    def start(self, request: Request) -> Rolling:
        """Nothing seen, and the large model writes."""
        return Rolling(deque(maxlen=self._window))

    def route(self, request: Request, step: Step) -> Decision:
        """Decide afresh at each step of the small model."""
        if request.member == LARGE:
            return Decision(1, SMALL)
        state: Rolling = request.state
        p, tau = self.scored(step)
        if state.large:
            state.window.append(p)
            state.large = not sum(state.window) / len(state.window) < tau
        elif not p < tau:
            state.large = True
            state.window.clear()
            state.window.append(p)
        return Decision(0, LARGE) if state.large else Decision(1, SMALL)
