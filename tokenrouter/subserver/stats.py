"""What a loop counts of itself, for `MemberState`."""

from __future__ import annotations

from collections import Counter


class Stats:
    """Steps and launches since the member started."""

    def __init__(self) -> None:
        self.batches: Counter[int] = Counter()
        self.longest_step = 0.0
        self.expired_waits = 0
        self._seconds = 0.0

    def stepped(self, batch: int, seconds: float) -> None:
        """A step of ``batch`` visits took ``seconds``."""
        self.batches[batch] += 1
        self.longest_step = max(self.longest_step, seconds)
        self._seconds += seconds

    @property
    def step_ms(self) -> float:
        """Mean milliseconds of a step."""
        return 1e3 * self._seconds / max(self.batches.total(), 1)
