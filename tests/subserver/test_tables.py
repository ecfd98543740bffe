"""Tables of thresholds: of fixed ones, compared, and judged."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tokenrouter.ipc.operations import LONGEST_TABLE
from tokenrouter.subserver.batching import clamp
from tokenrouter.subserver.tables import (
    below,
    fault_of,
    fixed_table,
    lower,
    never_falling,
    row,
    same,
)

wanted = st.lists(st.integers(1, 30), min_size=1, max_size=5)
quick = settings(derandomize=True, deadline=None)


@quick
@given(wanted)
def test_the_table_of_fixed_thresholds_is_safe_and_close_to_the_clamp(thresholds: list[int]):
    table = fixed_table(thresholds)
    assert fault_of(table, len(thresholds)) is None
    assert table[-1] == tuple(thresholds)
    for live, here in enumerate(table, 1):
        clamped = clamp(thresholds, live)
        assert all(0 <= want - now <= 1 for now, want in zip(here, clamped, strict=True))


@quick
@given(st.tuples(st.integers(1, 40), st.integers(1, 40)))
def test_with_two_members_the_table_is_the_clamp_rule(thresholds: tuple[int, int]):
    rows = [tuple(clamp(thresholds, live)) for live in range(1, sum(thresholds))]
    assert fixed_table(thresholds) == rows


def test_a_clamp_that_falls_as_requests_are_added_is_levelled():
    """One more of three members' delays may be given for a third one's: largest remainders."""
    assert (clamp([2, 4, 4], 4), clamp([2, 4, 4], 5)) == ([2, 2, 2], [1, 3, 3])
    assert fixed_table([2, 4, 4])[3:5] == [(1, 2, 2), (1, 3, 3)]


def test_what_is_said_of_tables():
    one, other = [(1, 1), (1, 2)], [(1, 1), (2, 1), (3, 1)]
    assert row(one, 1) == (1, 1)
    assert row(one, 9) == (1, 2)
    assert lower(one, other) == lower(other, one) == [(1, 1), (1, 1), (1, 1)]
    assert below([(1, 1)], [(1, 1), (1, 2)]) and not below(one, other)
    assert same([(1, 1)], [(1, 1), (1, 1)]) and not same(one, other)


def test_a_table_that_falls_is_levelled_from_its_end():
    assert never_falling([(1, 3), (2, 2), (1, 4), (5, 4)]) == [(1, 2), (1, 2), (1, 4), (5, 4)]


def test_the_longest_plan_is_accepted():
    assert fault_of([(1, live) for live in range(1, LONGEST_TABLE + 1)], 2) is None
