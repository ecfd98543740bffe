"""No routing: one member writes everything. What ``NAME/MEMBER`` runs."""

from __future__ import annotations

from collections.abc import Sequence

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step


class Single(RoutingScheduler):
    """Commit every token and stay."""

    def __init__(self, members: Sequence[str], router_threshold: float | None = None) -> None:
        super().__init__(members, router_threshold)
        if router_threshold is not None:
            raise ConfigError("router_threshold: single routes nothing; leave it out")

    def route(self, request: Request, step: Step) -> Decision:
        """Commit the step; the same member goes on."""
        return Decision(len(step.tokens), request.member)
