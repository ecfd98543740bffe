"""Who owes a sign of life, and since when. Times are seconds of a monotonic clock.

The keeper (`keeper.py`) asks at every beat whom to ping and who is overdue.
"""

from __future__ import annotations

from collections.abc import Iterable

INTERVAL_S = 1.0
"""Between two pings of one process; shorter where hangs are to be found sooner."""


class Heartbeat:
    """Of processes by name. ``timeout_s``: without an answer for so long, one hangs."""

    def __init__(self, timeout_s: float, now: float) -> None:
        self.interval_s = min(INTERVAL_S, timeout_s / 4)
        self._timeout_s = timeout_s
        self._watched: set[str] = set()
        self._owed: dict[str, float] = {}
        self._excused: dict[str, tuple[str, float]] = {}
        self._last = now
        self._number = 0

    def watch(self, names: Iterable[str]) -> None:
        """Ping these from now on."""
        self._watched.update(names)

    def forget(self, names: Iterable[str]) -> None:
        """Ping these no more."""
        for name in names:
            self._watched.discard(name)
            self._excused.pop(name, None)
            self.answered(name)

    def excuse(self, names: Iterable[str], by: str, until: float) -> None:
        """These may be silent until then, or until ``by`` gives a sign of life."""
        self._excused.update(dict.fromkeys(names, (by, until)))

    def left(self, now: float) -> float:
        """Seconds until the next beat is due."""
        return max(0.0, self._last + self.interval_s - now)

    def answered(self, name: str) -> None:
        """A sign of life."""
        self._owed.pop(name, None)
        for each in [each for each, (by, _) in self._excused.items() if by == name]:
            del self._excused[each]

    def beat(self, now: float) -> tuple[list[str], list[str]]:
        """(whom to ping now, who has been silent for too long).

        Call it when all answers that have arrived are counted. If this process itself was
        held up since the last beat, nobody else is blamed for that time.
        """
        held_up = now - self._last - 2 * self.interval_s
        if held_up > 0:
            self._owed = {name: since + held_up for name, since in self._owed.items()}
        self._last = now
        overdue = [
            name
            for name, since in self._owed.items()
            if now - max(since, self._excused.get(name, ("", since))[1]) > self._timeout_s
        ]
        due = [name for name in sorted(self._watched) if name not in self._owed]
        self._owed.update(dict.fromkeys(due, now))
        return due, overdue
