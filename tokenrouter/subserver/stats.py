"""What a loop counts of itself, for `MemberState`. Each call costs microseconds.

Times are the loop's clock, in seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tokenrouter.histogram import Histogram
from tokenrouter.ipc.member_state import Buckets
from tokenrouter.subserver.engine import Work

WAIT_S = (1e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Bounds of the wait for a threshold."""
STEP_S = (1e-3, 2e-3, 4e-3, 6e-3, 8e-3, 1e-2, 1.5e-2, 2e-2, 3e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Bounds of the time of a step."""
MARK_S = 2.0
"""Throughput is told of this long at least, and twice as long at most while steps go on."""


class Stats:
    """Steps, launches and tokens since the member started, at ``now``."""

    def __init__(self, now: float) -> None:
        self.batches: Counter[int] = Counter()
        self.expired_waits = 0
        self.fed_tokens = 0
        self.written_tokens = 0
        self.threshold_wait = Histogram(WAIT_S)
        self._steps: dict[int, Histogram] = {}
        self._seconds = 0.0
        self._marks = [(now, 0)] * 2

    def launched(self, work: Sequence[Work], now: float) -> None:
        """A step begins, for visits that have waited for it since they were ready."""
        since, alike = 0.0, 0
        for visit, n in work:
            self.fed_tokens += n
            if visit.control and len(visit.tokens) - visit.computed == n:
                # Most have been ready since the last step: counted together.
                if visit.ready_since != since:
                    self.threshold_wait.observe(now - since, alike)
                    since, alike = visit.ready_since, 0
                alike += 1
        self.threshold_wait.observe(now - since, alike)

    def stepped(self, batch: int, seconds: float, now: float) -> None:
        """A step of ``batch`` visits took ``seconds``."""
        self.batches[batch] += 1
        self._seconds += seconds
        size = 1 << (batch - 1).bit_length()
        if size not in self._steps:
            self._steps[size] = Histogram(STEP_S)
        self._steps[size].observe(seconds)
        if now - self._marks[1][0] >= MARK_S:
            self._marks = [self._marks[1], (now, self.written_tokens)]

    def throughput(self, now: float) -> float:
        """Tokens written per second, lately; falls towards 0 where nothing is written."""
        since, before = self._marks[0]
        return (self.written_tokens - before) / max(now - since, MARK_S)

    def steps(self) -> dict[int, Buckets]:
        """Times of steps by batch size: key b is of sizes up to b, and above b / 2."""
        return {size: times.snapshot() for size, times in self._steps.items()}

    @property
    def step_ms(self) -> float:
        """Mean milliseconds of a step."""
        return 1e3 * self._seconds / max(self.batches.total(), 1)
