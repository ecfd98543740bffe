"""What operators and the planner want of members between two steps, and the planner's plans.

`Inspect` is answered with a `member_state.MemberState`, `Control` with `Controlled`. `messages`
says who sends what to whom.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Inspect(msgspec.Struct, frozen=True, array_like=True, tag="inspect"):
    """Ask a member for its `MemberState`, which carries the same ``ticket``."""

    ticket: int


LONGEST_TABLE = 4096
"""Rows of the longest plan: a member checks it between two steps."""


class Plan(msgspec.Struct, frozen=True, array_like=True, tag="plan"):
    """Thresholds from now on: ``table[A - 1]`` has one a member, for A live requests.

    Its last row holds for more. No row can deadlock its A, and none is above a later one in
    any member's column: then members that count different A are safe together. ``version``
    grows with every plan of the deployment; ``reason``, in words, for operators.
    """

    version: int
    table: list[tuple[int, ...]]
    reason: str


class Planned(msgspec.Struct, frozen=True, array_like=True, tag="planned"):
    """What the planner has decided, for operators.

    ``table``: as in `Plan` (empty: none yet); ``version`` of the plan. ``changes``: tables
    since it started. ``concurrency``: A for which the table was solved. ``gain``: throughput
    that the model predicts there, over thresholds of 1 (1.0: the same). ``reason``, in words.
    """

    version: int
    table: list[tuple[int, ...]]
    changes: int
    concurrency: int
    gain: float
    reason: str


Action = Literal["flush_cache", "start_profile", "stop_profile", "update_weights_from_disk"]


class Control(msgspec.Struct, frozen=True, array_like=True, tag="control"):
    """Have a member's engine do something between two steps; it answers `Controlled`.

    ``arguments``: those of SGLang's request of the same name.
    """

    ticket: int
    action: Action
    arguments: dict[str, Any]


class Controlled(msgspec.Struct, frozen=True, array_like=True, tag="controlled"):
    """A member's answer to `Control`; ``busy``: it holds requests, and did nothing."""

    ticket: int
    member: int
    success: bool
    message: str
    busy: bool = False
