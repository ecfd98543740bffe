"""What the controller asks to be solved, and what it gets back: small, and without numba."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenrouter.config import Config
from tokenrouter.ipc.member_state import Measurements
from tokenrouter.ipc.supervision import Roster
from tokenrouter.subserver.tables import Table, fixed_table


@dataclass(frozen=True, slots=True)
class Terms:
    """What the deployment allows; of each member, in order.

    ``limits``: most requests in a step. ``fixed``: thresholds that the user has set, by member.
    ``base``: the table of the configuration, with 1 where it says auto. ``max_wait_ms``: longest
    wait for a threshold; None: ten of the longest steps. ``itl_p99_ms``: the gap between tokens
    that 1 % may exceed, if that limits what is best.
    """

    names: Sequence[str]
    limits: Sequence[int]
    fixed: Mapping[int, int]
    base: Table
    max_wait_ms: float | None = None
    itl_p99_ms: float | None = None


def terms(config: Config, roster: Roster) -> Terms:
    """Those of a deployment."""
    return Terms(
        config.names,
        [
            min(model.max_batch, member.max_visits)
            for model, member in zip(config.models, roster.members, strict=True)
        ],
        {m: each.threshold for m, each in enumerate(config.models) if each.threshold != "auto"},
        fixed_table(config.first_thresholds),
        config.max_wait_ms,
        config.itl_p99_ms,
    )


@dataclass(frozen=True, slots=True)
class Problem:
    """Which table is best for ``live`` requests, after what members measured (``windows``).

    ``table`` is in force now.
    """

    terms: Terms
    windows: Sequence[Measurements]
    live: int
    table: Table


@dataclass(frozen=True, slots=True)
class Solution:
    """A ``table`` for ``live`` requests, and some more or fewer.

    ``gain``: what its row for them is expected to give, over that of thresholds of 1 (1.0: the
    same); ``change``: over the table in force; infinite if that misses the objective, or cannot
    be predicted. ``method``: how that is known. ``reason``: what was measured, in words.
    """

    live: int
    table: Table
    gain: float
    change: float
    method: str
    reason: str
