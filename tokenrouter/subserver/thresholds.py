"""Thresholds in force: a table by number of live requests, which the loop looks up.

Made of the configuration's thresholds; replaced, between two steps, by each `Plan` of the
planner. Members count live requests by what they have heard, and hold a new plan at different
moments. What makes every such mix safe is checked here (`tables.fault_of`). At rest nobody counts
more requests than there are (A), so that all thresholds together are at most those of row A.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from tokenrouter.ipc.operations import Plan
from tokenrouter.subserver.tables import fault_of, fixed_table

logger = logging.getLogger(__name__)


class Thresholds:
    """The threshold of member ``me``, by number of live requests.

    Args:
        wanted: thresholds of all members, in force until the first plan.
    """

    def __init__(self, me: int, wanted: Sequence[int]) -> None:
        self._me, self._members, self._wanted = me, len(wanted), tuple(wanted)
        self.version = 0
        """Of the plan in force; 0: the configuration's thresholds."""
        self.unsafe = 0
        """Plans that were not applied, because they could have stopped the deployment."""
        self._use(fixed_table(wanted))

    def now(self, live: int) -> int:
        """The threshold at ``live`` requests (A of the clamp rule, from 0 on)."""
        return self._column[min(live, self._last)]

    def apply(self, plan: Plan) -> None:
        """Use a plan from now on, unless it is older than the one in force, or unsafe."""
        if plan.version <= self.version:
            return
        if fault := fault_of(plan.table, self._members):
            self.unsafe += 1
            logger.error("plan %d is not safe and is not applied: %s", plan.version, fault)
            return
        self.version = plan.version
        self._use(plan.table)

    def fall_back(self) -> None:
        """Use what was wanted at first: nobody adapts the plan in force to the traffic any more.

        Safe beside members that still have a plan, as no row of one is below this table's.
        """
        self.version = 0
        self._use(fixed_table(self._wanted))

    def _use(self, table: Iterable[Sequence[int]]) -> None:
        # No live request waits for a threshold, and row 0 is any.
        self._column = [1, *(row[self._me] for row in table)]
        self._last = len(self._column) - 1
