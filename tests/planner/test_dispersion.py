"""How much shares of steps vary."""

from __future__ import annotations

import numpy
import pytest

from tokenrouter.ipc.member_state import Measurements
from tokenrouter.planner.dispersion import PRIOR, overdispersion
from tokenrouter.throughput_model.estimate import NO_STEPS


def looks(shares: list[float], steps: int = 100) -> list[tuple[float, Measurements]]:
    """One a second, in each of which that share of ``steps`` led to member 1."""
    rng = numpy.random.default_rng(3)
    led = [0, *numpy.cumsum([rng.binomial(steps, share) for share in shares])]
    return [
        (
            float(second),
            Measurements(
                float(second), {}, NO_STEPS, {},
                {0: (second * steps - int(count), 0), 1: (int(count), 0)}, {}, 0.0,
            ),
        )
        for second, count in enumerate(led)
    ]  # fmt: skip


def test_independent_steps_are_not_overdispersed() -> None:
    assert overdispersion(looks([0.3] * 60), 1, 3.0) < 1.5
    assert overdispersion(looks([0.0] * 60), 1, 3.0) == 1.0


def test_stretches_are() -> None:
    """Of 6 s each, at shares .1 and .5: a variance of .04 where chance has .3 * .7 / 300."""
    shares = [(0.1, 0.5)[second // 6 % 2] for second in range(60)]
    expected = (19 * (1 + 0.04 * 300 / 0.21) + PRIOR) / (18 + PRIOR)
    assert overdispersion(looks(shares), 1, 3.0) == pytest.approx(expected, rel=0.2)


def test_what_happens_last_is_no_variance() -> None:
    """Nor is little known after little time."""
    assert overdispersion(looks([0.1] * 30 + [0.9] * 3), 1, 3.0) < 2.0
    assert overdispersion(looks([0.1, 0.9, 0.5]), 1, 3.0) == 1.0
    assert overdispersion(looks([0.1]), 1, 3.0) == 1.0
