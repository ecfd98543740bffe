"""How much shares of steps vary: routing of real text comes in stretches, easy ones and hard ones.

Then shares of some seconds differ by far more than independent draws would make them. Used by
`history.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from tokenrouter.ipc.member_state import Measurements

PRIOR = 4
"""Stretches that count as much as the belief that steps are routed independently."""


def overdispersion(looks: Sequence[tuple[float, Measurements]], to: int, seconds: float) -> float:
    """By what factor the variance of shares exceeds that of independent steps; 1 at least.

    Of stretches of ``seconds``, without the last one, as it is what is in question: Pearson's
    chi-squared over its degrees of freedom.

    Args:
        looks: (time in seconds, counts since some time) of one member.
        to: share of the steps that lead there.
    """
    times = numpy.array([time for time, _ in looks])
    hops = [measured.hops for _, measured in looks]
    there = numpy.array([each.get(to, (0, 0))[0] for each in hops], float)
    steps = numpy.array([sum(count for count, _ in each.values()) for each in hops], float)
    ends = numpy.arange(times[-1] - seconds, times[0] - 1e-9, -seconds)
    at = numpy.searchsorted(times, ends + 1e-9, side="right") - 1
    led, made = -numpy.diff(there[at]), -numpy.diff(steps[at])
    led, made = led[made > 0], made[made > 0]
    share = led.sum() / made.sum() if len(made) else 0.0
    if len(made) < 2 or not 0.0 < share < 1.0:
        return 1.0
    squares = float(((led - share * made) ** 2 / (share * (1.0 - share) * made)).sum())
    free = len(made) - 1
    return max(1.0, (squares + PRIOR) / (free + PRIOR))
