"""Router thresholds of any range as numbers from 0 to 1, so that bisection needs no unit."""

from __future__ import annotations

import math

LAST = 0.999
"""Stands for infinity where a range has no end: some 500 times the threshold in force."""
DIGITS = 4


class Scale:
    """Rises with the threshold: in proportion between two ends, else ever slower from a middle.

    Args:
        low: the lowest legal threshold, or minus infinity.
        high: the highest, or infinity.
        typical: the threshold in force; None, or outside: one is chosen.
    """

    def __init__(self, low: float, high: float, typical: float | None) -> None:
        self._low, self._high = low, high
        self._bounded = math.isfinite(low) and math.isfinite(high)
        if typical is None or not low < typical < high:
            typical = (low + high) / 2 if self._bounded else min(max(1.0, low + 1), high - 1)
        gaps = [abs(end - typical) for end in (low, high) if math.isfinite(end)]
        self._length = min(gaps) if gaps else abs(typical) or 1.0
        self.start = typical
        """Where to begin."""
        self.low, self.high = self.threshold(0.0), self.threshold(1.0)
        """The ends, or what stands for them."""

    def threshold(self, unit: float) -> float:
        """The threshold at a number from 0 to 1, rounded as people write it."""
        if self._bounded:
            value = self._low + unit * (self._high - self._low)
        else:
            offset = 2 * min(max(unit, 1 - LAST), LAST) - 1
            value = self.start + self._length * offset / (1 - abs(offset))
        rounded = float(f"{value:.{DIGITS}g}")
        return min(max(rounded, self._low), self._high)

    def unit(self, threshold: float) -> float:
        """The number from 0 to 1 of a threshold."""
        if self._bounded:
            return (threshold - self._low) / (self._high - self._low)
        lengths = (threshold - self.start) / self._length
        return (1 + lengths / (1 + abs(lengths))) / 2
