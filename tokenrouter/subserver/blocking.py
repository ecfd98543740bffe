"""Visits that have control and cannot go on: without memory, or without their grammar.

Kept for `loop.py`, which asks before each launch. The home counts such a request out of the
live ones as long as it is blocked (`messages.Blocked`, `Admitted`): nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenrouter.errors import RequestError
from tokenrouter.ipc.messages import Admitted, Blocked, Failed
from tokenrouter.subserver.engine import Engine, Visit
from tokenrouter.subserver.memory import Memory
from tokenrouter.subserver.visits import Visits

TellHome = Callable[[int, "Blocked | Admitted | Failed"], None]


class Blocking:
    """The blocked visits of one member.

    Args:
        tell_home: sends a message to a home.
        wake: ends the loop's wait for messages; from any thread.
        close: ends a visit here, without its home.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        engine: Engine,
        visits: Visits,
        memory: Memory,
        tell_home: TellHome,
        wake: Callable[[], None],
        close: Callable[[Visit], None],
        clock: Callable[[], float],
    ) -> None:
        self._engine, self._visits, self._memory = engine, visits, memory
        self._tell_home, self._wake, self._close = tell_home, wake, close
        self._clock = clock
        self._starved: dict[int, Visit] = {}
        self._preparing: list[int] = []

    def prepare(self, uid: int) -> None:
        """The visit may not step before the engine has what it needs: see `Visit.prepares`."""
        self._preparing.append(uid)

    def starved(self, visits: Sequence[Visit]) -> None:
        """They got no memory: count them out; one that only computes early gives up."""
        for visit in visits:
            visit.eager = False
            if visit.control:
                self._starved[visit.uid] = visit
                self._block(visit)

    def look(self) -> None:
        """Let those go on that can by now."""
        self._preparing = [uid for uid in self._preparing if self._unprepared(uid)]
        for visit in list(self._starved.values()):
            if self._visits.get(visit.uid) is None:
                del self._starved[visit.uid]
            elif self._memory.could_run(visit):
                del self._starved[visit.uid]
                self._unblock(visit)

    def _unprepared(self, uid: int) -> bool:
        """Whether a visit still waits; one for which that is in vain fails."""
        visit = self._visits.get(uid)
        if visit is None:
            return False
        try:
            ready = self._engine.prepare(visit, self._wake)
        except RequestError as error:
            self._close(visit)
            self._tell_home(visit.home, Failed(uid, str(error), error.status, error.field))
            return False
        if ready and visit.blocked:
            self._unblock(visit)
        elif not ready and visit.control and not visit.blocked:
            self._block(visit)
        return not ready

    def _block(self, visit: Visit) -> None:
        visit.blocked = True
        self._tell_home(visit.home, Blocked(visit.uid))

    def _unblock(self, visit: Visit) -> None:
        visit.blocked = False
        visit.ready_since = self._clock()
        self._tell_home(visit.home, Admitted(visit.uid))
