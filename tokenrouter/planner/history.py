"""What members measured, look by look: stretches of it, and whether something has changed.

Members count since they started; what happened between two looks is a difference. All windows
begin after the last change that was noticed; how much routing varies anyway is known from before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tokenrouter.ipc.member_state import Measurements
from tokenrouter.planner.dispersion import overdispersion
from tokenrouter.throughput_model import estimate

LONGEST_S = 60.0
"""Older measurements say little of now."""
CHANGE = 0.1
"""Relative change of a latency, or of a share of steps, that matters."""
ERRORS = 5.0
"""And standard errors that it must be: one such false alarm is expected in days."""
LEAST_STEPS = 20
"""Fewer steps, before or since, tell of no change."""


@dataclass(frozen=True, slots=True)
class _Moved:
    """Share of steps that lead to ``to``, before and now; ``error`` of the difference, if
    steps are routed independently of each other.
    """

    to: int
    was: float
    now: float
    error: float


class History:
    """Of ``members`` members. Times are the planner's clock, in seconds."""

    def __init__(self, members: int) -> None:
        self._looks: list[deque[tuple[float, Measurements]]] = [deque() for _ in range(members)]
        self._past: list[deque[tuple[float, Measurements]]] = [deque() for _ in range(members)]

    def add(self, member: int, measured: Measurements, now: float) -> None:
        """A member's counts at ``now``. One that was started again counts from 0."""
        for looks in (self._looks[member], self._past[member]):
            if looks and measured.at < looks[-1][1].at:
                looks.clear()
            looks.append((now, measured))
            while now - looks[0][0] > LONGEST_S:
                looks.popleft()

    def forget(self, member: int) -> None:
        """The member died."""
        self._looks[member].clear()
        self._past[member].clear()

    def begin(self, since: float) -> None:
        """What was before ``since`` counts no more."""
        for looks in self._looks:
            while len(looks) > 1 and looks[0][0] < since:
                looks.popleft()

    @property
    def span(self) -> float:
        """Seconds for which every member has been looked at."""
        return min(each[-1][0] - each[0][0] if each else 0.0 for each in self._looks)

    def windows(self, seconds: float = math.inf, end: float = 0.0) -> list[Measurements]:
        """Of each member, what it measured in (about) the last ``seconds`` before ``end``.

        ``end`` is that many seconds ago. Only with a positive `span`.
        """
        return [_window(looks, seconds, end) for looks in self._looks]

    def changed(self, recent: float, least: float = CHANGE) -> str | None:
        """What is different in the last ``recent`` seconds from what was before; None: nothing.

        ``least``: relative change that matters.
        """
        if self.span <= recent:
            return None
        before, since = self.windows(end=recent), self.windows(recent)
        for member, (old, new) in enumerate(zip(before, since, strict=True)):
            if slower := _latency_change(old, new, least):
                return f"steps of model {member} take {slower:.2f} times as long"
            moved = _routing_change(old, new, least)
            if moved and self._unusual(member, recent, moved):
                return f"model {member} sends {moved.now:.3f} of its steps to {moved.to}"
        return None

    def _unusual(self, member: int, recent: float, moved: _Moved) -> bool:
        """Whether this is more than what happens from ``recent`` s to the next anyway."""
        spread = overdispersion(self._past[member], moved.to, recent)
        return abs(moved.now - moved.was) > ERRORS * math.sqrt(spread) * moved.error


def _window(
    looks: Sequence[tuple[float, Measurements]], seconds: float, end: float
) -> Measurements:
    last = _before(looks, looks[-1][0] - end)
    first = _before(looks, last[0] - seconds)
    return estimate.window(first[1], last[1])


def _before(
    looks: Sequence[tuple[float, Measurements]], moment: float
) -> tuple[float, Measurements]:
    """The last look at or before ``moment``, else the first."""
    return next((look for look in reversed(looks) if look[0] <= moment), looks[0])


def _latency_change(old: Measurements, new: Measurements, least: float) -> float | None:
    """How many times as long steps of the same sizes take, if that is clear and matters."""
    sizes = [
        size
        for size, sums in new.steps.items()
        if size in old.steps and min(sums.count, old.steps[size].count) > 1
    ]
    count = sum(new.steps[size].count for size in sizes)
    if min(count, sum(old.steps[size].count for size in sizes)) < LEAST_STEPS:
        return None
    expected = actual = variance = 0.0
    for size in sizes:
        one, other = old.steps[size], new.steps[size]
        expected += other.count * one.seconds / one.count
        actual += other.seconds
        for sums, steps in ((one, other.count**2 / one.count), (other, other.count)):
            spread = sums.seconds_squared - sums.seconds**2 / sums.count
            variance += steps * max(spread, 0.0) / (sums.count - 1)
    difference = actual - expected
    clear = abs(difference) > ERRORS * math.sqrt(variance)
    return actual / expected if clear and abs(difference) > least * expected else None


def _routing_change(old: Measurements, new: Measurements, least: float) -> _Moved | None:
    """Where other shares of steps lead now, if that matters and chance alone does not do it."""
    total_old = sum(count for count, _ in old.hops.values())
    total_new = sum(count for count, _ in new.hops.values())
    if min(total_old, total_new) < LEAST_STEPS:
        return None
    for to in {*old.hops, *new.hops}:
        was = old.hops.get(to, (0, 0))[0] / total_old
        now = new.hops.get(to, (0, 0))[0] / total_new
        both = (was * total_old + now * total_new) / (total_old + total_new)
        error = math.sqrt(both * (1.0 - both) * (1.0 / total_old + 1.0 / total_new))
        if abs(now - was) > max(ERRORS * error, least * max(was, now)):
            return _Moved(to, was, now, error)
    return None
