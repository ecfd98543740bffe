"""What routing the demo problems with one setting gave, problem by problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
from numpy.typing import NDArray

Floats = NDArray[numpy.float64]


@dataclass(frozen=True)
class Point:
    """A setting of a method on some problems; the arrays have one entry a problem.

    Attributes:
        threshold: its router threshold; None: the algorithm's own.
        target: the share of large tokens that it was chosen for, if any.
        exact: whether the whole answer is the expected one (a probability for mixtures).
        result: whether its number is.
        tokens: of the answer, its end included.
        large: those that the large model wrote.
        seconds: that all problems took, asked at once; 0: computed, not served.
        passes: by model, requests summed over its steps (prompts' steps included).
    """

    method: str
    threshold: float | None
    target: float | None
    exact: Floats
    result: Floats
    tokens: Floats
    large: Floats
    seconds: float = 0.0
    passes: Mapping[str, int] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """Share of problems whose whole answer is exact."""
        return float(self.exact.mean())

    @property
    def share(self) -> float:
        """Of all tokens, those by the large model."""
        return float(self.large.sum() / self.tokens.sum())

    @property
    def throughput(self) -> float:
        """Tokens per second, all problems asked at once."""
        return float(self.tokens.sum()) / self.seconds if self.seconds else float("nan")

    def passes_per_token(self, model: str) -> float:
        """Forward passes of a request on ``model`` for each token of output."""
        return self.passes.get(model, 0) / float(self.tokens.sum())

    def first(self, count: int) -> Point:
        """The same on the first problems alone; what is not by problem is left out."""
        kept = {name: getattr(self, name)[:count] for name in ARRAYS}
        return Point(self.method, self.threshold, self.target, **kept)


ARRAYS = ("exact", "result", "tokens", "large")


def to_json(point: Point) -> dict[str, Any]:
    """For a file."""
    plain = {name: getattr(point, name) for name in ("method", "threshold", "target", "seconds")}
    arrays = {name: numpy.round(getattr(point, name), 6).tolist() for name in ARRAYS}
    return {**plain, "passes": dict(point.passes), **arrays}


def from_json(stored: Mapping[str, Any]) -> Point:
    """From a file."""
    arrays = {name: numpy.array(stored[name], dtype=float) for name in ARRAYS}
    return Point(**{**stored, **arrays})


def mixture(method: str, parts: Sequence[tuple[float | Floats, Point]]) -> Point:
    """What is expected if each problem is answered as in one of ``parts``, with these weights."""
    arrays = {
        name: numpy.sum([weight * getattr(point, name) for weight, point in parts], axis=0)
        for name in ARRAYS
    }
    return Point(method, None, None, **arrays)
