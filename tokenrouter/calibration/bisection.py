"""Which router threshold to try next for a wanted share, and which is the best of those tried.

How the share depends on the threshold is the algorithm's affair: it may rise or fall, jump, or
end short of what is wanted. No prompt is asked here: `share.py` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tokenrouter.calibration.client import Usage
from tokenrouter.calibration.scale import Scale
from tokenrouter.errors import MeasurementError

NEAR = 0.02
"""Near enough, as a part of the wanted share."""
NEAR_STDERRS = 0.25
"""Or in standard errors: nearer would not mean more."""
RESOLUTION = 0.001
"""Of the scale from the lowest to the highest threshold: a change within it may be a jump."""
JUMP = 0.01
"""It is one if the threshold changes by less than this part of itself, too."""
SMALLEST = 1e-3
"""Shares are interpolated by their logarithms; this is added to them."""


@dataclass(frozen=True)
class Point:
    """The share that one threshold gave, with its standard error over the prompts."""

    threshold: float
    share: float
    stderr: float
    tokens: int


@dataclass(frozen=True)
class Answer:
    """The threshold for a wanted share.

    ``kind``: ``measured`` it gave the share told; ``interpolated``: it should give it;
    ``jump``: the share jumps there, and no threshold comes nearer; ``beyond``: the wanted share
    is beyond what any threshold gives, and this is the nearest.
    """

    wanted: float
    threshold: float
    share: float
    stderr: float
    kind: Literal["measured", "interpolated", "jump", "beyond"]


def point(threshold: float, usages: Sequence[Usage]) -> Point:
    """The share over all answers; each prompt is one draw of a ratio estimator."""
    tokens = sum(usage.tokens for usage in usages)
    if not tokens:
        raise MeasurementError("the answers are empty; change --prompts or --max-tokens")
    share = sum(usage.of_others for usage in usages) / tokens
    squares = sum((usage.of_others - share * usage.tokens) ** 2 for usage in usages)
    count = len(usages)
    return Point(threshold, share, math.sqrt(count / (count - 1) * squares) / tokens, tokens)


def next_threshold(points: Sequence[Point], wanted: float, scale: Scale) -> float | None:
    """What to try after ``points`` (by rising threshold); None: nothing more can be learnt."""
    if not points:
        return scale.start
    if _near(points, wanted):
        return None
    if (ends := _around(points, wanted)) is None:
        tried = {each.threshold for each in points}
        return next((end for end in (scale.high, scale.low) if end not in tried), None)
    if _jumps(ends, scale):
        return None
    low, high = (scale.unit(each.threshold) for each in ends)
    part = 0.5 if len(points) % 2 else min(max(_part(ends, wanted), 0.1), 0.9)
    return scale.threshold(low + part * (high - low))


def answer(points: Sequence[Point], wanted: float, scale: Scale) -> Answer:
    """The best that ``points`` (by rising threshold) tell."""
    ends = _around(points, wanted)
    kind: Literal["measured", "jump", "beyond"] = "beyond"
    if _near(points, wanted):
        kind = "measured"
    elif ends is not None and _jumps(ends, scale):
        kind, points = "jump", ends
    elif ends is not None:
        low, high = (scale.unit(each.threshold) for each in ends)
        threshold = scale.threshold(low + _part(ends, wanted) * (high - low))
        stderr = max(each.stderr for each in ends)
        return Answer(wanted, threshold, wanted, stderr, "interpolated")
    nearest = min(
        points,
        key=lambda each: (abs(each.share - wanted), abs(scale.unit(each.threshold) - 0.5)),
    )
    return Answer(wanted, nearest.threshold, nearest.share, nearest.stderr, kind)


def _jumps(ends: tuple[Point, Point], scale: Scale) -> bool:
    """Whether no threshold between the two is worth trying."""
    low, high = (each.threshold for each in ends)
    return scale.unit(high) - scale.unit(low) < RESOLUTION and high - low < JUMP * max(
        abs(low), abs(high)
    )


def _near(points: Sequence[Point], wanted: float) -> bool:
    return any(
        abs(each.share - wanted) <= max(NEAR * wanted, NEAR_STDERRS * each.stderr)
        for each in points
    )


def _around(points: Sequence[Point], wanted: float) -> tuple[Point, Point] | None:
    """Neighbours, one on each side of the wanted share; the closest two of several."""
    sides = [
        (low, high)
        for low, high in pairwise(points)
        if min(low.share, high.share) <= wanted <= max(low.share, high.share)
    ]
    return min(sides, key=lambda pair: pair[1].threshold - pair[0].threshold, default=None)


def _part(ends: tuple[Point, Point], wanted: float) -> float:
    """How far from the first to the second the wanted share lies, by logarithms."""
    first, target, second = (
        math.log(share + SMALLEST) for share in (ends[0].share, wanted, ends[1].share)
    )
    return 0.5 if first == second else (target - first) / (second - first)
