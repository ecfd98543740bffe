"""Bringing a threshold table to every member, safely at every moment.

Members take a new table at different moments. Any mix of two tables is safe (no row can
deadlock its number of requests) if one is nowhere above the other. So a table that is above the
old one here and below it there is reached in two phases: first the lower of both everywhere,
and the new one when every member has confirmed that. A member that was just started holds the
base table, the configuration's: no planned table is below it.
"""

from __future__ import annotations

from tokenrouter.ipc.operations import Plan
from tokenrouter.subserver.tables import Table, below, lower, same

RESEND_S = 2.0
"""A member that has not confirmed a plan after so long is sent it again."""


class Publisher:
    """The plans that every member is to get, and who has them.

    Args:
        base: the table that members start with.

    Attributes:
        version: of the latest plan that any member was sent.
    """

    def __init__(self, base: Table, members: int) -> None:
        self.version = 0
        self._base = base
        self._goal: Table | None = None
        self._reason = ""
        self._held: Table | None = base
        """What all members hold (or base, if they were just started); None: nobody knows."""
        self._sending: Table | None = None
        self._plans = dict.fromkeys(range(members), 0)
        self._down: set[int] = set()
        self._sent: dict[int, float] = {}

    @property
    def settled(self) -> bool:
        """Whether nothing is on its way."""
        return self._sending is None and not (self._held and self._missing())

    @property
    def unknown(self) -> bool:
        """Whether members hold what a planner before this one has told them."""
        return self._held is None

    def aim(self, table: Table, reason: str) -> None:
        """From now on members are to hold ``table``; no row may be below the base's."""
        self._goal, self._reason = table, reason
        self._advance()

    def heard(self, member: int, version: int) -> None:
        """``member`` holds the plan of this version."""
        self._plans[member] = version
        if version > self.version:  # of a planner before this one
            self.version = version
            self._held = self._sending = None
        self._advance()

    def lost(self, member: int) -> None:
        """``member`` died; nobody waits for it."""
        self._down.add(member)
        self._advance()

    def returned(self, member: int) -> None:
        """``member`` is back, with the base table."""
        self._down.discard(member)
        self._plans[member] = 0
        self._sent.pop(member, None)

    def due(self, now: float) -> list[tuple[int, Plan]]:
        """The plans to send at ``now`` (seconds), by member."""
        table = self._held if self._sending is None else self._sending
        if table is None:
            return []
        late = [m for m in self._missing() if now - self._sent.get(m, -RESEND_S) >= RESEND_S]
        self._sent |= dict.fromkeys(late, now)
        plan = Plan(self.version, list(table), self._reason)
        return [(member, plan) for member in late]

    def _missing(self) -> list[int]:
        return [m for m, v in self._plans.items() if v != self.version and m not in self._down]

    def _advance(self) -> None:
        """Close phases that everybody has confirmed, and begin the next, if there is one."""
        while self._sending is None or not self._missing():
            if self._sending is not None:
                self._held, self._sending = self._sending, None
            self._sending = self._next()
            if self._sending is None:
                return
            self.version += 1
            self._sent.clear()

    def _next(self) -> Table | None:
        """What members are to hold after what they hold now; None: they have it."""
        if self._goal is None:
            return None
        if self._held is None:
            return self._base
        if same(self._held, self._goal):
            return None
        near = below(self._held, self._goal) or below(self._goal, self._held)
        return self._goal if near else lower(self._held, self._goal)
