"""The longest step of a member, as it is now: one hiccup hardly counts, a slower machine soon does.

Fed by `measurements.py` with steps that feed no prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

WARM_UP = 3
"""First steps of each batch size, of which the shortest counts: some compile, or fill caches."""
MEMORY = 30
"""Steps of one batch size after which its mean has nearly forgotten earlier ones."""
MOST = 2.0
"""A step counts as so many times the mean at most."""
MATTERS = 0.1
"""Relative change that is told."""


@dataclass(slots=True)
class _Mean:
    steps: int = 0
    seconds: float = 0.0


class LongestStep:
    """Seconds of the longest mean step of any batch size.

    Attributes:
        seconds: within a tenth; 0: not known yet.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = self._longest = seconds
        self._size = 0
        self._means: dict[int, _Mean] = {}

    def add(self, size: int, seconds: float) -> None:
        """A step of ``size`` visits took so long."""
        mean = self._means.get(size)
        if mean is None:
            mean = self._means[size] = _Mean()
        mean.steps += 1
        if mean.steps <= WARM_UP:
            mean.seconds = min(mean.seconds, seconds) if mean.steps > 1 else seconds
            if mean.steps < WARM_UP:
                return
        else:
            counts = min(seconds, MOST * mean.seconds)
            mean.seconds += (counts - mean.seconds) / min(mean.steps, MEMORY)
        if size == self._size or mean.seconds > self._longest:
            self._size, self._longest = size, mean.seconds
            if abs(self._longest - self.seconds) > MATTERS * self.seconds:
                self.seconds = self._longest
