"""Tables reach every member, and no mix on the way can deadlock."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tokenrouter.ipc.operations import Plan
from tokenrouter.planner.publishing import RESEND_S, Publisher
from tokenrouter.subserver.tables import Table, fault_of, fixed_table, never_falling, row, same
from tokenrouter.subserver.thresholds import Thresholds


class Members:
    """Members that take plans as the real ones do, when they are told to."""

    def __init__(self, wanted: Sequence[int]) -> None:
        self.wanted = wanted
        self.thresholds = [Thresholds(m, wanted) for m in range(len(wanted))]
        self.tables: list[Table] = [fixed_table(wanted)] * len(wanted)
        self.inbox: list[list[Plan]] = [[] for _ in wanted]

    def take(self, member: int, count: int = 1) -> None:
        for plan in self.inbox[member][:count]:
            self.thresholds[member].apply(plan)
            self.tables[member] = plan.table
        del self.inbox[member][:count]

    def restart(self, member: int) -> None:
        self.thresholds[member] = Thresholds(member, self.wanted)
        self.tables[member] = fixed_table(self.wanted)
        self.inbox[member] = []

    def assert_safe(self) -> None:
        """No number of requests can wait for each other."""
        for live in range(1, 40):
            waiting = sum(each.now(live) - 1 for each in self.thresholds)
            assert waiting < live, (live, [each.now(live) for each in self.thresholds])


def random_table(rng: random.Random, rows: int) -> list[tuple[int, ...]]:
    """A safe table of three members whose thresholds start at one."""
    table = [(1, 1, 1)]
    for live in range(2, rows + 1):
        new = list(table[-1])
        if sum(new) - 3 < live - 1 and rng.random() < 0.7:
            new[rng.randrange(3)] += 1
        table.append(tuple(new))
    assert fault_of(table, 3) is None
    return table


def test_one_phase_where_one_table_is_above_the_other_else_two() -> None:
    publisher = Publisher(fixed_table((1, 1)), 2)
    assert publisher.settled and publisher.due(0.0) == []
    one, other = [(1, 1), (1, 2)], [(1, 1), (2, 1)]
    publisher.aim(one, "first")
    assert publisher.due(0.0) == [(m, Plan(1, one, "first")) for m in (0, 1)]
    for member in (0, 1):
        assert not publisher.settled
        publisher.heard(member, 1)
    assert publisher.settled
    publisher.aim(other, "second")
    assert publisher.due(1.0) == [(m, Plan(2, [(1, 1), (1, 1)], "second")) for m in (0, 1)]
    publisher.heard(0, 2)
    publisher.heard(0, 2)
    assert publisher.due(1.1) == [], "the other has not confirmed"
    publisher.heard(1, 2)
    assert publisher.due(1.2) == [(m, Plan(3, other, "second")) for m in (0, 1)]


def test_what_is_not_confirmed_is_sent_again_now_and_then() -> None:
    publisher = Publisher(fixed_table((1, 1)), 2)
    publisher.aim([(1, 1), (1, 2)], "why")
    assert len(publisher.due(0.0)) == 2
    publisher.heard(0, 1)
    publisher.heard(1, 0)
    assert publisher.due(RESEND_S / 2) == []
    assert [member for member, _ in publisher.due(RESEND_S)] == [1]


def test_nobody_waits_for_a_member_that_is_down_and_one_that_is_back_is_told() -> None:
    publisher = Publisher(fixed_table((1, 1)), 2)
    publisher.aim([(1, 1), (1, 2)], "why")
    publisher.due(0.0)
    publisher.heard(0, 1)
    publisher.lost(1)
    assert publisher.settled
    publisher.returned(1)
    assert not publisher.settled
    assert [member for member, _ in publisher.due(0.1)] == [1]
    publisher.heard(1, 1)
    assert publisher.settled


def test_a_new_planner_brings_members_back_to_the_base_before_anything_else() -> None:
    publisher = Publisher(fixed_table((1, 1)), 2)
    publisher.heard(0, 7)
    publisher.heard(1, 8)
    assert publisher.due(0.0) == [], "they keep what they have until there is something better"
    goal = [(1, 1), (1, 2)]
    publisher.aim(goal, "why")
    assert publisher.due(0.0) == [(m, Plan(9, [(1, 1)], "why")) for m in (0, 1)]
    for member in (0, 1):
        publisher.heard(member, 9)
    assert publisher.due(0.1) == [(m, Plan(10, goal, "why")) for m in (0, 1)]


@pytest.mark.parametrize("seed", range(60))
def test_no_mix_of_tables_is_ever_unsafe(seed: int) -> None:
    """Members take plans late, die, come back; goals and planners change at any moment."""
    rng = random.Random(seed)
    wanted = (1, 1, 1) if seed % 3 else (1, 4, 1)
    members = Members(wanted)
    base = fixed_table(wanted)
    publisher = Publisher(base, 3)
    goal: Table = base
    now, down = 0.0, set[int]()
    for _ in range(400):
        now += rng.random()
        act, member = rng.random(), rng.randrange(3)
        if act < 0.05:
            drawn = random_table(rng, rng.randrange(1, 20))
            goal = legal(drawn, base) if wanted != (1, 1, 1) else drawn
            publisher.aim(goal, "why")
        elif act < 0.08:
            down ^= {member}
            if member in down:
                members.restart(member)  # what it held counts no more
                publisher.lost(member)
            else:
                publisher.returned(member)
        elif act < 0.09:
            publisher = Publisher(base, 3)
            for each in down:
                publisher.lost(each)
            members.inbox = [[], [], []]  # what an earlier planner sent is stale
            for each in {0, 1, 2} - down:
                publisher.heard(each, members.thresholds[each].version)
        elif act < 0.5 and member not in down:
            members.take(member)
        elif member not in down:
            publisher.heard(member, members.thresholds[member].version)
        for each, plan in publisher.due(now):
            members.inbox[each].append(plan)
        members.assert_safe()
    for each in down:
        publisher.returned(each)
    publisher.aim(goal, "the end")
    for _ in range(8):
        now += RESEND_S
        for each, plan in publisher.due(now):
            members.inbox[each].append(plan)
        for each in range(3):
            members.take(each, 99)
            publisher.heard(each, members.thresholds[each].version)
    assert publisher.settled
    assert all(same(each, goal) for each in members.tables)
    assert not any(each.unsafe for each in members.thresholds)


def legal(table: Table, base: Table) -> list[tuple[int, ...]]:
    """Where the second threshold is not the planner's: as in the base table, the others fit."""
    rows = []
    for live in range(1, len(table) + len(base)):
        first, _, last = row(table, live)
        pinned = row(base, live)[1]
        free = live - pinned
        new = (1 + min(first - 1, free), pinned, 1)
        new = (new[0], pinned, 1 + min(last - 1, free - new[0] + 1))
        rows.append(new)
    table = never_falling(rows)
    assert fault_of(table, 3) is None
    return table


def test_one_phase_alone_would_not_be_safe() -> None:
    """Why there are two: of two safe tables, one member holding each, four requests wait."""
    members = Members((1, 1, 1))
    for member, table in ((1, [(1, 1, 1)] * 3 + [(1, 4, 1)]), (2, [(1, 1, 1)] * 3 + [(1, 1, 4)])):
        members.thresholds[member].apply(Plan(member, table, ""))
    with pytest.raises(AssertionError):
        members.assert_safe()
