"""Points made up for tests: each problem has a difficulty, and a share buys the easy ones."""

from __future__ import annotations

import numpy
from quality_points import Point

PROBLEMS = 400
TOKENS = 100.0
DIFFICULTY = numpy.random.default_rng(0).permutation(PROBLEMS) / PROBLEMS


def point(method: str, accuracy: float, share: float, target: float | None = None) -> Point:
    """The ``accuracy`` easiest problems right, ``share`` of each answer by the large model."""
    exact = (accuracy > DIFFICULTY).astype(float)
    tokens = numpy.full(PROBLEMS, TOKENS)
    return Point(
        method, share, target, exact, exact, tokens, tokens * share, 2.0, {"large": 80, "small": 4}
    )
