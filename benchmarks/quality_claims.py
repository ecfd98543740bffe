"""What routing the demo pair must show, and whether it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy
from quality_bounds import query_mixing, query_oracle, spent
from quality_methods import COMPARED, ENTROPY, HINDSIGHT, LARGE, R2R, RANDOM, SHARES, SMALL
from quality_points import Floats, Point
from quality_statistics import DRAWS, Interval, Resampled, interval
from validation import Verdict

KEPT = 0.99
"""Of the large model's accuracy."""
EXACT_RATE = (0.40, 0.60)
"""Of the small model, for the comparison to mean anything."""
R2R_SHARE, HINDSIGHT_SHARE = 0.10, 0.04
Curves = Mapping[str, Sequence[Point]]
"""Points by method."""


def with_bounds(served: Curves, oracle: Point) -> dict[str, list[Point]]:
    """``served`` and the curves that are computed from the models' own answers and the oracle's."""
    (small,), (large,) = served[SMALL.name], served[LARGE.name]
    parts = [part * oracle.share for part in (0.25, 0.5, 0.75)]
    computed = {
        "random query mixing": [query_mixing(small, large, share) for share in SHARES],
        "query oracle": [query_oracle(small, large, share) for share in SHARES],
        "token oracle": [*(spent("token oracle", small, oracle, part) for part in parts), oracle],
    }
    return {**{name: list(points) for name, points in served.items()}, **computed}


class Claims:
    """Verdicts on ``curves``, whose points are all on the same ``problems``."""

    def __init__(self, curves: Curves, problems: int, draws: int = DRAWS) -> None:
        self._curves = {
            name: [point for point in points if len(point.exact) == problems]
            for name, points in curves.items()
        }
        (self._small,), (self._large,) = curves[SMALL.name], curves[LARGE.name]
        self._drawn = Resampled(problems, draws)

    def verdicts(self) -> list[Verdict]:
        """All, those on what was not measured as failed."""
        low, high = EXACT_RATE
        rate = interval(self._drawn.accuracy(self._small))
        found = [Verdict(f"small model alone: {rate} exact", low <= rate.value <= high)]
        found += self._reached()
        for target in COMPARED:
            for other in (ENTROPY.name, RANDOM.name, "random query mixing", "query oracle"):
                found.append(self._better(other, target))
        return [*found, self._hindsight(), self._bound()]

    def _needed(self, name: str) -> Floats:
        """Of each draw, the share at which a method keeps what is asked."""
        wanted = KEPT * self._drawn.accuracy(self._large)
        return self._drawn.share_for(self._with_small(name), wanted)

    def _with_small(self, name: str) -> list[Point]:
        return [self._small, *self._curves[name]]

    def _reached(self) -> list[Verdict]:
        ours = f"r2r keeps {KEPT:.0%} of the large model's accuracy"
        if not self._curves.get(R2R.name):
            return [Verdict(f"{ours}: not measured", False)]
        needed = self._needed(R2R.name)
        share = interval(needed)
        verdicts = [Verdict(f"{ours} at a share of {share}", share.value <= R2R_SHARE)]
        if self._curves.get(ENTROPY.name):
            theirs = self._needed(ENTROPY.name)
            difference = interval(_less(needed, theirs))
            verdicts.append(
                Verdict(
                    f"which entropy does at {interval(theirs)}: a difference of {difference}",
                    difference.high < 0,
                )
            )
        return verdicts

    def _better(self, other: str, target: float) -> Verdict:
        """Than another method, at the share r2r took where ``target`` was wanted."""
        ours = [each for each in self._curves.get(R2R.name, ()) if each.target == target]
        what = f"r2r less {other} at {target:.0%}"
        if not ours or not self._curves.get(other):
            return Verdict(f"{what}: not measured", False)
        theirs = self._drawn.accuracy_at(self._with_small(other), self._drawn.share(ours[0]))
        gained = interval(self._drawn.accuracy(ours[0]) - theirs)
        return Verdict(f"{what}: {_signed(gained)}", gained.low > 0)

    def _hindsight(self) -> Verdict:
        what = f"{HINDSIGHT.name} keeps {KEPT:.0%} of the large model's accuracy"
        if not self._curves.get(HINDSIGHT.name):
            return Verdict(f"{what}: not measured", False)
        share = interval(self._needed(HINDSIGHT.name))
        return Verdict(f"{what} at a share of {share}", share.value < HINDSIGHT_SHARE)

    def _bound(self) -> Verdict:
        """Nothing is better than the token oracle at its own share."""
        oracle = self._with_small("token oracle")
        curve = sorted((point.share, point.accuracy) for point in oracle)
        above = [
            (point.accuracy - float(numpy.interp(point.share, *zip(*curve, strict=True))), name)
            for name, points in self._curves.items()
            for point in points
        ]
        most, name = max(above)
        return Verdict(f"nothing above the token oracle: at most {most:+.4f} ({name})", most < 1e-3)


def _less(ours: Floats, theirs: Floats) -> Floats:
    """The difference of shares that may be infinite, which two together are no difference."""
    both = numpy.isinf(ours) & numpy.isinf(theirs)
    return numpy.where(both, 0.0, numpy.where(both, 0.0, ours) - numpy.where(both, 0.0, theirs))


def _signed(found: Interval) -> str:
    return f"{found.value:+.4f} [{found.low:+.4f}, {found.high:+.4f}]"
