"""Thresholds by number of live requests: of the configuration, and of the planner."""

from __future__ import annotations

import logging

import pytest

from tokenrouter.ipc.operations import LONGEST_TABLE, Plan
from tokenrouter.subserver.thresholds import Thresholds

SAFE = [(1, 1), (1, 2), (1, 2), (2, 3)]


def test_a_threshold_is_looked_up_by_live_requests():
    thresholds = [Thresholds(me, (2, 3)) for me in (0, 1)]
    assert [each.now(0) for each in thresholds] == [1, 1]
    # Delays 1 and 2: 2/3 and 4/3 of two, 1/3 and 2/3 of one.
    assert [[each.now(live) for each in thresholds] for live in (1, 2, 3, 4, 999)] == [
        [1, 1], [1, 2], [2, 2], [2, 3], [2, 3],
    ]  # fmt: skip


def test_a_plan_replaces_the_table_and_its_last_row_holds_for_more():
    thresholds = Thresholds(1, (1, 9))
    thresholds.apply(Plan(3, SAFE, "as measured"))
    assert thresholds.version == 3
    assert [thresholds.now(live) for live in (0, 1, 2, 3, 4, 5, 10_000)] == [1, 1, 2, 2, 3, 3, 3]


def test_without_a_planner_the_configuration_holds_again():
    thresholds = Thresholds(1, (2, 1))
    thresholds.apply(Plan(7, [(1, 1), (2, 1), (2, 2)], ""))
    assert (thresholds.version, thresholds.now(3)) == (7, 2)
    thresholds.fall_back()
    assert (thresholds.version, thresholds.now(3)) == (0, 1)


@pytest.mark.parametrize("version", [3, 2])
def test_a_plan_that_is_not_newer_is_ignored(version: int):
    thresholds = Thresholds(0, (1, 1))
    thresholds.apply(Plan(3, SAFE, ""))
    thresholds.apply(Plan(version, [(1, 1)], ""))
    assert (thresholds.version, thresholds.now(4), thresholds.unsafe) == (3, 2, 0)


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ([], "it has 0 rows, not 1 to 4096"),
        ([(1, 1)] * (LONGEST_TABLE + 1), "it has 4097 rows"),
        ([(1, 1), (1, 2, 1)], "row 2 has 3 thresholds for 2 members"),
        ([(1, 1), ()], "row 2 has 0 thresholds"),
        ([(1, 0)], "row 1 is below 1"),
        ([(1, 1), (1, 2), (1, 1)], "row 3 is below 1, or below that of the row before"),
        ([(1, 2)], "row 1 can deadlock 1 requests"),
        ([(1, 1), (1, 2), (2, 3)], "row 3 can deadlock 3 requests"),
        ([(1, 1), (-(2**63), 2**63)], "row 2 is below 1"),
        ([(1, 1), (2**64 - 1, 1)], "row 2 can deadlock 2 requests"),
    ],
)
def test_an_unsafe_plan_is_counted_logged_and_not_applied(
    table: list[tuple[int, ...]], fault: str, caplog: pytest.LogCaptureFixture
):
    thresholds = Thresholds(1, (1, 2))
    thresholds.apply(Plan(1, SAFE, ""))
    with caplog.at_level(logging.ERROR):
        thresholds.apply(Plan(2, table, "by mistake"))
    assert (thresholds.version, thresholds.unsafe, thresholds.now(4)) == (1, 1, 3)
    assert "plan 2 is not safe" in caplog.text and fault in caplog.text
    thresholds.apply(Plan(2, [(1, 1)], "better"))
    assert (thresholds.version, thresholds.now(4)) == (2, 1), "its number may be used again"
