"""Throughput with its standard error, from readings of how many tokens there were when.

A run is cut into blocks of equally many tokens. Runs with the same prompts and coins write,
in the same block, under nearly the same decisions: what two runs differ by is estimated from
the differences of their blocks, in which most of the chance cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[numpy.float64]
MIN_BLOCKS = 8
"""Fewer say too little of their spread."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value and its standard error."""

    value: float
    stderr: float

    def __str__(self) -> str:
        return f"{self.value:.4g} +- {self.stderr:.2g}"


@dataclass(frozen=True)
class Blocks:
    """Seconds that each block of ``size`` tokens took; block ``first`` began at first * size."""

    size: int
    first: int
    seconds: Floats

    @property
    def throughput(self) -> Estimate:
        """Tokens per second, with the standard error of batch means."""
        count = len(self.seconds)
        mean = float(self.seconds.mean())
        spread = float(self.seconds.std(ddof=1)) / mean / math.sqrt(count)
        value = self.size / mean
        return Estimate(value, value * spread)


def cut(times: Sequence[float], tokens: Sequence[float], size: int) -> Blocks:
    """Whole blocks of ``size`` tokens between the first reading and the last.

    Args:
        times: seconds of the readings.
        tokens: written until then, since the requests began.

    Raises:
        ValueError: there are fewer than `MIN_BLOCKS`.
    """
    first, last = math.ceil(tokens[0] / size), math.floor(tokens[-1] / size)
    if last - first < MIN_BLOCKS:
        raise ValueError(f"{tokens[-1] - tokens[0]:.0f} tokens are no {MIN_BLOCKS} x {size}")
    edges = numpy.interp(numpy.arange(first, last + 1) * size, tokens, times)
    return Blocks(size, first, numpy.diff(edges))


def ratio(one: Blocks, other: Blocks) -> Estimate:
    """Throughput of ``one`` over that of ``other``, from the blocks that both have.

    Raises:
        ValueError: they have fewer than `MIN_BLOCKS` in common.
    """
    return pooled_ratio([(one, other)])


def pooled_ratio(pairs: Sequence[tuple[Blocks, Blocks]]) -> Estimate:
    """`ratio` over several pairs of runs; the standard error is of a ratio of sums.

    Raises:
        ValueError: the two of a pair have fewer than `MIN_BLOCKS` in common.
    """
    common = [_common(one, other) for one, other in pairs]
    ours = numpy.concatenate([seconds for seconds, _ in common])
    theirs = numpy.concatenate([seconds for _, seconds in common])
    value = float(theirs.sum() / ours.sum())
    residuals = theirs - value * ours
    count = len(ours)
    return Estimate(value, float(residuals.std(ddof=1)) / float(ours.mean()) / math.sqrt(count))


def lower_bound(estimate: Estimate, blocks: int) -> float:
    """What the true value exceeds with a confidence of `CONFIDENCE` (one-sided, Student's t)."""
    return estimate.value - float(stats.t.ppf(CONFIDENCE, blocks - 1)) * estimate.stderr


def common_blocks(one: Blocks, other: Blocks) -> int:
    """How many blocks both have."""
    return len(_common(one, other)[0])


def _common(one: Blocks, other: Blocks) -> tuple[Floats, Floats]:
    if one.size != other.size:
        raise ValueError(f"blocks of {one.size} tokens and of {other.size} do not compare")
    first = max(one.first, other.first)
    last = min(one.first + len(one.seconds), other.first + len(other.seconds))
    if last - first < MIN_BLOCKS:
        raise ValueError(f"only {max(last - first, 0)} blocks in common, not {MIN_BLOCKS}")
    return (
        one.seconds[first - one.first : last - one.first],
        other.seconds[first - other.first : last - other.first],
    )
