"""Which processes of the deployment are there, and so which requests can be served.

Told by the supervisor (`frontend/supervision.py`); asked before a request is taken, when it is
sent, and by `/health`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from tokenrouter.config import DETOKENIZER_NAME, FRONT_END_NAME, PLANNER_NAME
from tokenrouter.errors import DrainingError, MemberDeadError
from tokenrouter.ipc.messages import DETOKENIZER, FRONT_END, PLANNER
from tokenrouter.ipc.supervision import Roster, Up


class Presence:
    """Of the members ``names``, the detokenizer, the front end itself, and the planner if any.

    ``roster`` is kept up to date. ``draining``: no request is taken any more.
    """

    def __init__(self, roster: Roster, names: Sequence[str]) -> None:
        self.roster = roster
        self.draining = False
        self._down: dict[int, float] = {}
        self._names = dict(enumerate(names))
        self._names.update({FRONT_END: FRONT_END_NAME, DETOKENIZER: DETOKENIZER_NAME})
        if PLANNER in roster.others:
            self._names[PLANNER] = PLANNER_NAME
        self._since = dict.fromkeys(self._names, time.monotonic())

    def lost(self, process: int) -> None:
        """A process died."""
        self._down[process] = time.monotonic()

    def returned(self, up: Up) -> None:
        """A process is back."""
        self._down.pop(up.process, None)
        self._since[up.process] = time.monotonic()
        self.roster = self.roster.after(up)

    def is_up(self, process: int) -> bool:
        """Whether a process is there."""
        return process not in self._down

    def name(self, process: int) -> str:
        """What a process is called."""
        return self._names[process]

    def check(self, members: Iterable[int] | None = None) -> None:
        """Refuse what may visit ``members`` (None: all of them) if it cannot be served now.

        Raises:
            DrainingError: the server is about to stop.
            MemberDeadError: one of these members, or the detokenizer, is being restarted.
        """
        if self.draining:
            raise DrainingError("the server is stopping and takes no more requests")
        self.check_members(members)

    def check_members(self, members: Iterable[int] | None = None) -> None:
        """As `check`, for what was taken already and may end while the server drains.

        Raises:
            MemberDeadError: as in `check`.
        """
        everybody = self._names.keys() - {PLANNER}  # whom no request needs
        wanted = everybody if members is None else {*members, DETOKENIZER}
        if missing := sorted(self.name(each) for each in self._down if each in wanted):
            raise MemberDeadError(
                f"{' and '.join(missing)} died and is being restarted; try again in a few seconds"
            )

    def report(self) -> dict[str, dict[str, Any]]:
        """For each process: is it up, how often was it restarted, how old is it (seconds).

        ``pids``: of its ranks; none while it is down.
        """
        now = time.monotonic()
        return {
            name: {
                "up": self.is_up(process),
                "pids": self.roster.pids.get(process, ()) if self.is_up(process) else (),
                "restarts": self.roster.restarts.get(process, 0),
                "seconds": round(now - self._down.get(process, self._since[process]), 3),
            }
            for process, name in self._names.items()
        }
