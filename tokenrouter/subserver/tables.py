"""Tables of thresholds, as a `Plan` has them: what is legal, and how two of them compare.

Two properties make it safe that members, who count live requests by what they have heard, look
at different rows: no row can deadlock its number of requests, and no threshold falls as that
number grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, zip_longest
from operator import gt

from tokenrouter.ipc.operations import LONGEST_TABLE
from tokenrouter.subserver.batching import clamp

Table = Sequence[tuple[int, ...]]
"""``table[A - 1]``: thresholds, one a member, for A live requests; the last row for more."""


def row(table: Table, live: int) -> tuple[int, ...]:
    """The thresholds for ``live`` requests (from 1 on)."""
    return table[min(live, len(table)) - 1]


def lower(one: Table, other: Table) -> list[tuple[int, ...]]:
    """The lower of two tables, everywhere."""
    pairs = zip_longest(one, other)
    return [_lower_row(a or one[-1], b or other[-1]) for a, b in pairs]


def below(one: Table, other: Table) -> bool:
    """Whether ``one`` is nowhere above ``other``."""
    return same(lower(one, other), one)


def same(one: Table, other: Table) -> bool:
    """Whether two tables say the same of every number of requests."""
    longest = max(len(one), len(other))
    return all(row(one, live) == row(other, live) for live in range(1, longest + 1))


def never_falling(table: Table) -> list[tuple[int, ...]]:
    """``table``, each row at most every later one."""
    return list(accumulate(reversed(table), _lower_row))[::-1]


def fixed_table(wanted: Sequence[int]) -> list[tuple[int, ...]]:
    """Rows for 1, 2, ... live requests: what was ``wanted``, clamped; the last is that itself.

    From three members on, a threshold that is clamped alone may fall as requests are added
    (the Alabama paradox of the largest remainder).
    """
    most = sum(wanted) - len(wanted)
    clamped = [tuple(clamp(wanted, live)) for live in range(1, most + 1)]
    return never_falling([*clamped, tuple(wanted)])


def fault_of(table: Sequence[Sequence[int]], members: int) -> str | None:
    """Why a plan's table must not be applied, in words; None: it is safe."""
    if not 1 <= len(table) <= LONGEST_TABLE:
        return f"it has {len(table)} rows, not 1 to {LONGEST_TABLE}"
    before: Sequence[int] = (1,) * members
    for live, here in enumerate(table, 1):
        if len(here) != members:
            return f"row {live} has {len(here)} thresholds for {members} members"
        if any(map(gt, before, here)):
            return f"a threshold of row {live} is below 1, or below that of the row before"
        if sum(here) - members >= live:
            return f"row {live} can deadlock {live} requests"
        before = here
    return None


def _lower_row(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(min, one, other))
