"""Counting how often a quantity falls into each of a few ranges, in plain Python.

Members and the front end observe; `frontend.metrics` writes for Prometheus.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from tokenrouter.ipc.member_state import Buckets


class Histogram:
    """Buckets with the upper ``bounds`` (ascending, inclusive), and one for all above."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count ``value``, ``times`` times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def snapshot(self) -> Buckets:
        """What was counted so far."""
        return Buckets(self._bounds, list(self._counts), self._sum)
