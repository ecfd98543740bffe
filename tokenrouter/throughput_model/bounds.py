"""What no thresholds can exceed: operational bounds on throughput, for `plan` and for tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.parameters import System


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds on tokens/s, whatever the routing's law and the thresholds.

    ``no_waiting``: N / sum_m V_m min_b l_m(b), when no request ever waits. ``saturated``: for
    each model max_b b / (V_m l_m(b)), when it always computes its most efficient batch.
    """

    no_waiting: float
    saturated: tuple[float, ...]

    @property
    def tokens_per_s(self) -> float:
        """The smallest of them."""
        return min(self.no_waiting, *self.saturated)

    @property
    def bottleneck(self) -> int | None:
        """The model that bounds; None when the number of requests does."""
        return None if self.no_waiting <= min(self.saturated) else int(numpy.argmin(self.saturated))


def bounds(system: System, concurrency: int) -> Bounds:
    """Of a system with N = ``concurrency`` requests; V_m are steps on m per committed token.

    Raises:
        ConfigError: ``concurrency`` is below 1.
    """
    if concurrency < 1:
        raise ConfigError(f"concurrency: must be at least 1, got {concurrency}")
    visits = system.visits_per_token
    each = [system.latencies(model, concurrency) for model in range(system.size)]
    token_ms = sum(v * own.min() for v, own in zip(visits, each, strict=True))
    rates = [numpy.arange(1, len(own) + 1) / own for own in each]
    saturated = tuple(float(1e3 * r.max() / v) for r, v in zip(rates, visits, strict=True))
    return Bounds(float(1e3 * concurrency / token_ms), saturated)


def bound(system: System, concurrency: int) -> float:
    """Tokens/s that no threshold vector exceeds with N = ``concurrency`` requests."""
    return bounds(system, concurrency).tokens_per_s
