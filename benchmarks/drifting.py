"""An algorithm whose coin changes while a request goes on, for `auto_thresholds.py`."""

from __future__ import annotations

from tokenrouter.schedulers.base import Decision, Request, Step
from tokenrouter.schedulers.random import LARGE, SMALL, Random

NAME = "benchmarks.drifting:Drifting"
NEW_P = 0.117
DRIFT_AT = 1000
"""Position from which p is `NEW_P`: reached after some 20 s by four requests of the pair."""


class Drifting(Random):
    """`random` with the deployment's p up to position `DRIFT_AT`, and `NEW_P` from there on."""

    def route(self, request: Request, step: Step) -> Decision:
        """Flip the coin of this position."""
        p = self.probability if request.position < DRIFT_AT else NEW_P
        if request.member == SMALL and request.draw() < p:
            return Decision(0, LARGE)
        return Decision(1, SMALL)
