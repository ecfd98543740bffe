"""Router thresholds at which a method's share of large tokens is what is wanted.

The share is measured again and again on problems that are for this alone. Its logarithm is taken
to be nearly straight over the threshold, on the method's own scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

CLOSE = 0.05
"""Relative error of a share that is close enough."""
FAR = 0.3
"""One that is too far: no threshold has this share."""
PROBES = 6
"""Measured for each target, at most."""
LEAST = 1e-4
"""Smaller shares are taken for this one."""
NEAR = 1.0
"""Logarithms of shares that differ less are taken to be on a line."""
MARGIN = 0.02
"""A guess stays so far inside of what surrounds it, relative to its width."""
Place = tuple[float, float]
"""On a method's scale, and the logarithm of the share there."""


@dataclass(frozen=True)
class Scale:
    """Thresholds from ``low`` to ``high``, by ``log``, ``root`` (square), ``logit`` or ``linear``.

    The share at ``low`` is taken to be 1 and that at ``high`` 0 until it is measured; the other
    way round if it ``rises`` with the threshold.
    """

    kind: str
    low: float
    high: float
    rises: bool = False

    def place(self, threshold: float) -> float:
        """Where a threshold lies."""
        if self.kind == "log":
            return math.log(threshold)
        if self.kind == "logit":
            return math.log(threshold / (1 - threshold))
        return math.sqrt(threshold) if self.kind == "root" else threshold

    def threshold(self, place: float) -> float:
        """The threshold there, to 6 digits."""
        if self.kind == "log":
            place = math.exp(place)
        elif self.kind == "logit":
            place = 1 / (1 + math.exp(-place))
        elif self.kind == "root":
            place = place**2
        return float(f"{place:.6g}")


def tune(
    probe: Callable[[float], float],
    targets: Sequence[float],
    scale: Scale,
    measured: dict[float, float],
) -> Mapping[float, float]:
    """The threshold of each target share that can be had.

    Args:
        probe: the share at a threshold.
        measured: shares by threshold that are known; those that are probed are added.
    """
    assumed = [(scale.place(scale.low), 0.0), (scale.place(scale.high), math.log(LEAST))]
    if scale.rises:
        assumed = [(assumed[0][0], assumed[1][1]), (assumed[1][0], assumed[0][1])]
    found = {}
    for target in targets:
        for _ in range(PROBES):
            if _error(measured, target) <= CLOSE:
                break
            guess = scale.threshold(_between(assumed, measured, scale, math.log(target)))
            if guess in measured:
                break
            measured[guess] = probe(guess)
        if _error(measured, target) <= FAR:
            found[target] = min(measured, key=lambda each: abs(measured[each] - target))
    return found


def _error(measured: Mapping[float, float], target: float) -> float:
    """Of the best threshold so far, relative."""
    return min((abs(share / target - 1) for share in measured.values()), default=math.inf)


def _between(
    assumed: Sequence[Place], measured: Mapping[float, float], scale: Scale, wanted: float
) -> float:
    """The place where the logarithm of the share is ``wanted``, as far as is known.

    Between the nearest shares above and below: on the line through them, or nearer to the middle
    while they are far apart. Before both are measured: on the line through the nearest two that
    are, unless it leaves what surrounds the place.
    """
    found = [(scale.place(each), math.log(max(share, LEAST))) for each, share in measured.items()]
    known = [*assumed, *found]
    above = min((each for each in known if each[1] >= wanted), key=lambda each: each[1])
    below = max((each for each in known if each[1] < wanted), key=lambda each: each[1])
    low, high = sorted((above[0], below[0]))
    guess = _on_line(above, below, wanted)
    if above in found and below in found:
        return guess if above[1] - below[1] < NEAR else (guess + (low + high) / 2) / 2
    nearest = sorted(found, key=lambda each: abs(each[1] - wanted))[:2]
    if len(nearest) == 2 and nearest[0][1] != nearest[1][1]:
        other = _on_line(*nearest, wanted)
        margin = MARGIN * (high - low)
        return other if low + margin < other < high - margin else guess
    return guess


def _on_line(one: Place, other: Place, wanted: float) -> float:
    (x0, y0), (x1, y1) = one, other
    return x0 + (y0 - wanted) / (y0 - y1) * (x1 - x0)
