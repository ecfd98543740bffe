"""Who keeps memory when a pool is full, who loses it, and who waits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.subserver.builders import FakeEngine, make_visit
from tokenrouter.subserver.engine import Visit
from tokenrouter.subserver.memory import Memory, victims


class Table(list[Visit]):
    """As much of `Visits` as the memory policy uses."""

    departures = 0

    def feed_again(self, visit: Visit) -> None:
        """No visit here has anything to check."""


class SharedPrompts(FakeEngine):
    """All have one prompt, and should wait for whoever computes it."""

    def should_wait(self, visit: Visit, others: Sequence[Visit]) -> bool:
        assert not visit.resident
        return bool(others)


def memory(engine: FakeEngine, *visits: Visit) -> tuple[Memory, Table]:
    table = Table(visits)
    engine.hold(*(visit for visit in visits if visit.resident))
    return Memory(engine, table), table


def taken(engine: FakeEngine) -> list[object]:
    return [uid for call, uid, *_ in engine.calls if call == "release"]


def resident(uid: int, length: int, computed: int, **options: object) -> Visit:
    return make_visit(uid, length, computed, resident=True, **options)


def test_victims_are_younger_parked_before_running_and_the_youngest_first():
    visits = [
        resident(uid, 4, 3, control=control)
        for uid, control in [(1, True), (2, False), (6, True), (4, False), (7, True), (5, False)]
    ]
    absent = make_visit(9, control=False)
    assert [v.uid for v in victims(visits[1], [*visits, absent])] == [5, 4, 7, 6]
    assert [v.uid for v in victims(visits[4], visits)] == []


def test_work_that_fits_is_left_as_it_is():
    engine = FakeEngine(20)
    first, second = resident(2, 8, 4), resident(1, 8, 4)
    policy, _ = memory(engine, first, second)
    work = [(first, 4), (second, 4)]
    assert policy.secure(work) == (work, [])
    assert engine.calls == []


def test_a_visit_is_admitted_and_what_the_cache_had_is_remembered():
    engine = FakeEngine(20, cached=3)
    visit = make_visit(1, 8)
    policy, _ = memory(engine, visit)
    assert policy.secure([(visit, 8)]) == ([(visit, 5)], [])
    assert (visit.resident, visit.computed, visit.cached) == (True, 3, 3)


def test_the_cache_counts_at_the_first_admission_only():
    engine = FakeEngine(20, cached=3)
    visit = make_visit(1, 8)
    visit.cached = 1
    policy, _ = memory(engine, visit)
    policy.secure([(visit, 8)])
    assert visit.cached == 1


def test_an_older_visit_takes_from_the_youngest_and_only_as_much_as_it_needs():
    engine = FakeEngine(14)
    old, mid, young = resident(1, 6, 4), resident(2, 5, 5, control=False), resident(3, 5, 5)
    mid.eager = True
    policy, _ = memory(engine, old, mid, young)
    # Nothing is free: the parked one loses its 5 tokens; the running one keeps its own.
    assert policy.secure([(old, 2)]) == ([(old, 2)], [])
    assert taken(engine) == [2]
    assert (mid.resident, mid.computed, mid.eager) == (False, 0, False)
    assert (young.resident, young.computed) == (True, 5)
    assert policy.evictions == 1


def test_a_younger_visit_never_takes_from_an_older_one():
    engine = FakeEngine(10)
    old, young = resident(1, 6, 5, control=False), resident(2, 6, 5)
    policy, _ = memory(engine, old, young)
    assert policy.secure([(young, 1)]) == ([], [young])
    assert taken(engine) == []
    assert (old.computed, young.computed, young.resident) == (5, 5, True)


def test_nothing_is_taken_when_it_could_not_be_enough():
    engine = FakeEngine(20)
    oldest = resident(1, 12, 12, control=False)
    young = resident(9, 4, 4)
    needy = make_visit(5, 9)
    policy, _ = memory(engine, oldest, young, needy)
    assert policy.secure([(needy, 9)]) == ([], [needy])
    assert taken(engine) == [5], "only its own slot goes back"
    assert young.resident and policy.evictions == 0


def test_what_a_visit_holds_itself_is_nothing_it_could_take():
    engine = FakeEngine(20)
    oldest, needy, young = resident(1, 8, 8, control=False), resident(5, 11, 8), resident(9, 2, 2)
    policy, _ = memory(engine, oldest, needy, young)
    engine.free = 0
    assert policy.secure([(needy, 3)]) == ([], [needy]), "2 could be taken, and 3 are needed"
    assert taken(engine) == []
    assert (needy.resident, needy.computed) == (True, 8)


def test_a_visit_that_comes_in_needs_room_for_all_it_knows():
    engine = FakeEngine(20)
    old, needy = resident(1, 15, 15, control=False), make_visit(5, 9)
    policy, _ = memory(engine, old, needy)
    assert policy.secure([(needy, 2)]) == ([], [needy]), "2 tokens would fit, 9 do not"
    engine.release(old)
    old.resident, old.computed = False, 0
    assert policy.secure([(needy, 2)]) == ([(needy, 2)], [])


def test_memory_goes_to_the_oldest_first_and_is_not_promised_twice():
    engine = FakeEngine(10)
    old, young = resident(1, 7, 4, control=True), resident(2, 5, 3)
    policy, _ = memory(engine, old, young)
    # 3 are free. The younger one comes first in the work, and must still wait.
    granted, starved = policy.secure([(young, 2), (old, 3)])
    assert granted == [(old, 3)]
    assert starved == [young]


def test_a_slot_is_taken_from_a_younger_visit():
    engine = FakeEngine(100, max_visits=2)
    first, last = resident(1, 4, 4, control=False), resident(9, 4, 4, control=False)
    needy = make_visit(5, 4)
    policy, _ = memory(engine, first, last, needy)
    assert policy.secure([(needy, 4)]) == ([(needy, 4)], [])
    assert (last.resident, first.resident) == (False, True)


def test_a_visit_without_a_slot_waits_if_all_others_are_older():
    engine = FakeEngine(100, max_visits=1)
    first, needy = resident(1, 4, 4, control=False), make_visit(5, 4)
    policy, _ = memory(engine, first, needy)
    assert policy.secure([(needy, 4)]) == ([], [needy])
    assert first.resident and not needy.resident


def test_no_slot_is_taken_for_a_visit_without_memory():
    engine = FakeEngine(20, max_visits=2)
    oldest, young = resident(1, 12, 12, control=False), resident(9, 4, 4)
    needy = make_visit(5, 9)
    policy, _ = memory(engine, oldest, young, needy)
    assert policy.secure([(needy, 9)]) == ([], [needy])
    assert young.resident and not needy.resident and policy.evictions == 0
    needy.tokens.pop()
    assert policy.secure([(needy, 8)]) == ([(needy, 8)], [])
    assert not young.resident and policy.evictions == 1


def test_one_visit_computes_a_prompt_that_others_share_and_they_follow():
    engine = SharedPrompts(100)
    first, second, third = (make_visit(uid, 40) for uid in (1, 2, 3))
    policy, _ = memory(engine, first, second, third)
    work = [(visit, visit.pending) for visit in (third, first, second)]
    assert policy.secure(work) == ([(first, 40)], [])
    assert [visit.follows for visit in (first, second, third)] == [False, True, True]
    assert not second.resident
    first.computed = 40
    assert policy.secure([(third, 40), (second, 40)]) == ([(second, 40)], [])
    assert (second.follows, third.follows) == (False, True)


def test_nobody_follows_a_visit_that_got_no_memory():
    engine = SharedPrompts(60)
    oldest = resident(1, 50, 50, control=False)
    first, second = make_visit(2, 40), make_visit(3, 5)
    policy, _ = memory(engine, oldest, first, second)
    assert policy.secure([(first, 40), (second, 5)]) == ([(second, 5)], [first])


def test_an_evicted_member_of_the_same_work_is_readmitted_only_if_there_is_room():
    engine = FakeEngine(12)
    old, young = resident(1, 9, 5), resident(2, 7, 6)
    policy, _ = memory(engine, old, young)
    granted, starved = policy.secure([(old, 4), (young, 1)])
    assert granted == [(old, 4)]
    assert starved == [young]
    assert (young.resident, young.computed, young.pending) == (False, 0, 7)


def test_a_blocked_visit_is_tried_again_after_a_departure_or_when_room_appears():
    engine = FakeEngine(20)
    oldest, needy = resident(1, 15, 15, control=False), make_visit(5, 9)
    policy, table = memory(engine, oldest, needy)
    policy.secure([(needy, 9)])
    assert not policy.could_run(needy)
    table.departures += 1
    assert not policy.could_run(needy), "somebody left, but it is still not enough"
    table.remove(oldest)
    engine.release(oldest)
    assert policy.could_run(needy)


def test_blocked_visits_do_not_evict_younger_ones_in_turn():
    engine = FakeEngine(20)
    oldest, needy = resident(1, 15, 15, control=False), make_visit(5, 9)
    policy, table = memory(engine, oldest, needy)
    policy.secure([(needy, 9)])
    young = resident(9, 5, 5)
    table.append(young)
    engine.hold(young)
    table.remove(oldest)
    engine.free += 15  # as if the oldest had been cut: not a departure
    assert policy.could_run(needy), "15 tokens are free"
    engine.free -= 6
    assert policy.could_run(needy), "9 tokens are free, all that it needs"
    engine.free -= 1
    assert not policy.could_run(needy), "it would need the younger one's, and nobody left"


def test_readmission_computes_again_from_the_start():
    engine = FakeEngine(12)
    old, young = resident(1, 9, 5), resident(2, 7, 6)
    policy, table = memory(engine, old, young)
    policy.secure([(old, 4), (young, 1)])
    old.computed += 4
    engine.free -= 4
    table.remove(old)
    engine.release(old)
    table.departures += 1
    assert policy.could_run(young)
    assert policy.secure([(young, 7)]) == ([(young, 7)], [])
    assert young.resident and young.computed == 0


specs = st.lists(
    st.tuples(st.integers(1, 12), st.integers(0, 12), st.booleans(), st.booleans()),
    min_size=1,
    max_size=8,
)


@settings(derandomize=True, deadline=None)
@given(specs, st.integers(0, 12), st.sampled_from([0, 1, 8]), st.permutations(range(8)))
def test_the_oldest_always_gets_memory_and_only_younger_ones_lose_it(
    specs: Sequence[tuple[int, int, bool, bool]], spare: int, slots: int, uids: Sequence[int]
):
    """``slots``: free ones at first; 8 are always enough, so that only tokens are scarce."""
    visits = []
    for uid, (length, computed, control, here) in zip(uids, specs, strict=False):
        computed = min(computed, length - control) if here else 0
        visits.append(make_visit(uid, length, computed, control=control, resident=here))
    held = sum(visit.computed for visit in visits)
    most = max(visit.length for visit in visits)
    engine = FakeEngine(max(held + spare, most), max(sum(v.resident for v in visits) + slots, 1))
    policy, _ = memory(engine, *visits)
    before = {visit.uid: visit.resident for visit in visits}
    work = [(visit, visit.pending) for visit in visits if visit.control]
    granted, starved = policy.secure(work)

    assert sum(n for _, n in granted) <= engine.free_tokens()
    assert engine.free + sum(v.computed for v in visits) == engine.pool_tokens
    # One that was evicted and readmitted on the way is fed less than all it has to redo.
    assert all(visit.resident and 1 <= n <= visit.pending for visit, n in granted)
    assert {v.uid for v, _ in work} == {v.uid for v, _ in granted} | {v.uid for v in starved}
    lost = [visit.uid for visit in visits if before[visit.uid] and not visit.resident]
    winners = [visit.uid for visit, _ in granted]
    for uid in lost:
        assert uid in winners or any(older < uid for older in winners)
    if work and min(visits, key=lambda v: v.uid).control:
        assert min(uids[: len(specs)]) in winners, "the oldest of all always proceeds"


@pytest.mark.parametrize("share", [1, 5, 9])
def test_a_chunk_of_a_long_prompt_needs_the_whole_prompt_free(share: int):
    engine = FakeEngine(10)
    old, needy = resident(1, share, share, control=False), make_visit(2, 10 - share)
    policy, _ = memory(engine, old, needy)
    assert policy.secure([(needy, 1)]) == ([(needy, 1)], [])
    longer = make_visit(3, 11 - share)
    assert policy.secure([(longer, 1)]) == ([], [longer])
