"""Who keeps KV memory when a pool is full: the older request, always.

KV is a cache: a victim loses all of it and is recomputed by the work rule later. Because
only younger visits are ever taken from, the oldest request always proceeds, on every
member alike, and two members can never starve each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tokenrouter.subserver.engine import Engine, Visit, Work
from tokenrouter.subserver.visits import Visits


def victims(needy: Visit, visits: Iterable[Visit]) -> Iterator[Visit]:
    """Resident visits to take from: parked, then in control; the youngest first in each."""
    younger = [visit for visit in visits if visit.resident and visit.uid > needy.uid]
    yield from sorted(younger, key=lambda visit: (visit.control, -visit.uid))


class Memory:
    """Makes room for the work of a step; ``visits`` is the table of all that may hold some."""

    def __init__(self, engine: Engine, visits: Visits) -> None:
        self._engine = engine
        self._visits = visits
        self.evictions = 0
        self.admitted_tokens = 0
        """Tokens of visits when they first came in; ``cached_tokens`` of them were in KV."""
        self.cached_tokens = 0

    def secure(self, work: Sequence[Work]) -> tuple[list[Work], list[Visit]]:
        """Make room for as much of ``work`` as the pool allows, oldest visit first.

        Admits visits that are not resident and evicts younger ones as needed. One that shares
        its prompt with an older one in ``work`` may be left out: next time it finds it cached.
        Returns the work that can run now, and the visits that got no memory.
        """
        needed = 0
        for visit, n in work:
            if not visit.resident:
                break
            needed += n
        else:
            if needed <= self._engine.free_tokens():
                return list(work), []
        granted: list[Work] = []
        starved: list[Visit] = []
        leaders: list[Visit] = []
        reserved = 0
        for visit, n in sorted(work, key=lambda item: item[0].uid):
            if not (visit.control or visit.eager):
                continue  # it computed ahead of control, and an older one has just taken its place
            visit.follows = not visit.resident and self._engine.should_wait(visit, leaders)
            if visit.follows:
                continue
            n = self._grant(visit, n, reserved)
            reserved += n
            if n:
                granted.append((visit, n))
                if visit.unshared:
                    leaders.append(visit)
            else:
                starved.append(visit)
        return granted, starved

    def share_prompt(self, visit: Visit) -> None:
        """Let others find the prompt of an ``unshared`` visit, if it is computed.

        Short of the last token, which whoever has the same prompt must compute again.
        """
        if visit.computed >= visit.prompt_length - 1:
            visit.unshared = False
            self._engine.share(visit, visit.prompt_length - 1)

    def could_run(self, visit: Visit) -> bool:
        """Whether a blocked visit is worth another try.

        Somebody must have left since its last one, or there is room without taking from
        anybody: else two blocked visits could evict younger ones in turn, for ever.
        """
        if self._engine.free_tokens() >= visit.pending:
            return True
        return visit.starved_at != self._visits.departures and self._enough(visit, visit.pending)

    def _grant(self, visit: Visit, n: int, reserved: int) -> int:
        """How many of ``n`` tokens ``visit`` may feed beside ``reserved`` ones: all or none.

        A visit that comes in needs room for everything it knows, or it would be evicted
        again before its first token.
        """
        visit.starved_at = self._visits.departures
        takeable = victims(visit, self._visits)
        fresh = not visit.resident
        while not visit.resident:
            if self._engine.admit(visit):
                visit.resident = True
                self._visits.feed_again(visit)
                visit.unshared = visit.computed < visit.prompt_length - 1
                if visit.cached is None:
                    visit.cached = visit.computed
                    self.admitted_tokens += visit.length
                    self.cached_tokens += visit.computed
            elif not self._enough(visit, reserved + visit.pending):
                return 0  # a slot, taken from somebody, would be of no use
            elif not self._evict_next(takeable):
                return 0
        n = min(n, visit.pending)
        needed = reserved + (visit.pending if fresh else n)
        if self._engine.free_tokens() >= needed:
            return n
        if self._enough(visit, needed):
            while self._evict_next(takeable):
                if self._engine.free_tokens() >= needed:
                    return n
        if fresh:
            self._release(visit)
        return 0

    def _enough(self, visit: Visit, needed: int) -> bool:
        """Whether taking from everyone younger could give ``needed`` tokens.

        Optimistic where visits share a cached prefix, exact for the oldest visit.
        """
        takeable = sum(other.computed for other in self._visits if other.uid > visit.uid)
        return self._engine.free_tokens() + takeable >= needed

    def _evict_next(self, takeable: Iterator[Visit]) -> bool:
        victim = next(takeable, None)
        if victim is None:
            return False
        self.evictions += 1
        self._release(victim)
        return True

    def _release(self, visit: Visit) -> None:
        """Take all a visit holds; it is not computed again before control returns."""
        self._engine.release(visit)
        visit.resident = visit.unshared = False
        visit.computed = 0
        visit.checked.clear()
        visit.eager = False
