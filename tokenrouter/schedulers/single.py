"""No routing: one member writes everything. What ``NAME/MEMBER`` runs."""

from __future__ import annotations

from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step


class Single(RoutingScheduler):
    """Commit every token and stay."""

    def route(self, request: Request, step: Step) -> Decision:
        """Commit the step; the same member goes on."""
        return Decision(len(step.tokens), request.member)
