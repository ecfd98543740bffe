"""Paired bootstrap: the same problems are drawn again for every setting that is compared.

A method's settings make a curve, accuracy over the share of large tokens, straight between
them. What is compared are curves at one share, or the shares at which they reach an accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from quality_points import Floats, Point

DRAWS = 2000
INTERVAL = (2.5, 97.5)


@dataclass(frozen=True)
class Interval:
    """An estimate, and the 95 % interval of its bootstrap."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


class Resampled:
    """Settings measured on the same problems, drawn ``draws`` times with replacement.

    Row 0 of what it computes is of the problems as they are.
    """

    def __init__(self, problems: int, draws: int = DRAWS, seed: int = 0) -> None:
        rng = numpy.random.default_rng(seed)
        drawn = rng.multinomial(problems, [1.0 / problems] * problems, size=draws)
        self._weights = numpy.vstack([numpy.ones(problems), drawn])

    def accuracy(self, point: Point) -> Floats:
        """Of each draw."""
        return self._mean(point.exact)

    def share(self, point: Point) -> Floats:
        """Of large tokens, of each draw."""
        return self._mean(point.large) / self._mean(point.tokens)

    def _mean(self, values: Floats) -> Floats:
        mean: Floats = self._weights @ values / self._weights.shape[1]
        return mean

    def curves(self, points: Sequence[Point]) -> NDArray[numpy.float64]:
        """Of each draw, every point's (share, accuracy): [draws, points, 2], by rising share."""
        ordered = sorted(points, key=lambda point: point.share)
        pairs = [numpy.stack([self.share(each), self.accuracy(each)], axis=1) for each in ordered]
        return numpy.stack(pairs, axis=1)

    def accuracy_at(self, points: Sequence[Point], shares: Floats) -> Floats:
        """Of each draw, the accuracy of the curve at that draw's share; flat beyond its ends."""
        return _each(self.curves(points), shares, lambda c, x: float(numpy.interp(x, *c.T)))

    def share_for(self, points: Sequence[Point], accuracies: Floats) -> Floats:
        """Of each draw, the least share at which the curve has that accuracy; inf: nowhere."""
        return _each(self.curves(points), accuracies, _crossing)


def interval(values: Floats) -> Interval:
    """Of a bootstrap; row 0 is the estimate."""
    low, high = numpy.percentile(values[1:], INTERVAL, method="inverted_cdf")
    return Interval(float(values[0]), float(low), float(high))


def _each(
    curves: NDArray[numpy.float64],
    values: Floats,
    function: Callable[[NDArray[numpy.float64], float], float],
) -> Floats:
    return numpy.array([function(*pair) for pair in zip(curves, values, strict=True)])


def _crossing(curve: NDArray[numpy.float64], accuracy: float) -> float:
    (share, reached), *others = curve
    if reached >= accuracy:
        return float(share)
    for next_share, next_reached in others:
        if next_reached >= accuracy:
            along = (accuracy - reached) / (next_reached - reached)
            return float(share + along * (next_share - share))
        share, reached = next_share, next_reached
    return float("inf")
