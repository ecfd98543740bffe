"""What requests decide, as `decisions.py` and `recorded.py` make it and `events.py` plays it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from tokenrouter.errors import ConfigError

Models = NDArray[numpy.int8]
Commits = NDArray[numpy.float32]


@dataclass(frozen=True, eq=False, slots=True)
class Tapes:
    """What each of N requests does, as a loop that can be repeated.

    ``first``: (N,) the model of its first step. ``following``: (N, L) where it goes after each
    step; its last entry is ``first``. ``committed``: (N, L) tokens of each step (an expectation:
    fractions are fine). ``lengths``: (N,) steps of each tape; what is beyond them is ignored.
    """

    first: Models
    following: Models
    committed: Commits
    lengths: NDArray[numpy.int64]

    def __post_init__(self) -> None:
        count, steps = self.following.shape
        if self.committed.shape != (count, steps):
            raise ConfigError(
                f"tapes: {self.following.shape} steps, {self.committed.shape} commits"
            )
        if self.first.shape != (count,) or self.lengths.shape != (count,) or not count:
            raise ConfigError("tapes: each request must have a first model and a length")
        if self.lengths.min() < 1 or self.lengths.max() > steps:
            raise ConfigError(f"tapes: lengths must be from 1 to {steps}")
        if min(self.first.min(), self.following.min()) < 0:
            raise ConfigError("tapes: models are numbered from 0")
        if not (numpy.isfinite(self.committed).all() and (self.committed >= 0).all()):
            raise ConfigError("tapes: committed tokens must be finite and not negative")
        if (self.following[numpy.arange(count), self.lengths - 1] != self.first).any():
            raise ConfigError("tapes: the last step of each must lead to its first model")

    @property
    def requests(self) -> int:
        """N, their number."""
        return len(self.first)

    @property
    def models(self) -> int:
        """One more than the highest model that a step leads to."""
        return int(max(self.first.max(), self.following.max())) + 1
