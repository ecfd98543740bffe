"""How long requests wait for a threshold at most, where the configuration does not say.

One rule, for the loops of the members and for the simulations of the throughput model.
"""

from __future__ import annotations

from collections.abc import Iterable

WAIT_STEPS = 10
UNKNOWN_WAIT_S = 1.0
"""As long as some member's steps are not known."""


def longest_wait(steps: Iterable[float]) -> float:
    """Of the longest step of each member, in their unit: ten times the longest of all."""
    return WAIT_STEPS * max(steps)
