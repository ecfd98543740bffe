"""Delayed batching: the clamp rule and the choice of work."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.subserver.builders import make_visit
from tokenrouter.subserver.batching import Limits, choose, clamp
from tokenrouter.subserver.engine import Visit

WIDE = Limits(64, 1000)
thresholds = st.lists(st.integers(1, 60), min_size=1, max_size=6)
quick = settings(derandomize=True, deadline=None)


@quick
@given(thresholds, st.integers(0, 200))
def test_clamp_keeps_the_sum_safe_and_never_raises_a_threshold(wanted: list[int], live: int):
    clamped = clamp(wanted, live)
    assert all(1 <= now <= want for now, want in zip(clamped, wanted, strict=True))
    assert sum(now - 1 for now in clamped) <= max(live - 1, 0)


@quick
@given(thresholds, st.integers(0, 200))
def test_clamp_changes_nothing_that_is_safe_and_wastes_nothing_otherwise(
    wanted: list[int], live: int
):
    total, allowed = sum(want - 1 for want in wanted), max(live - 1, 0)
    clamped = clamp(wanted, live)
    if total <= allowed:
        assert clamped == wanted
        return
    assert sum(now - 1 for now in clamped) == allowed
    for now, want in zip(clamped, wanted, strict=True):
        assert abs(now - 1 - Fraction((want - 1) * allowed, total)) < 1


@quick
@given(st.integers(1, 300), st.integers(1, 300))
def test_clamp_of_one_delayed_member_is_a_minimum(theta: int, live: int):
    assert clamp([1, theta], live) == [1, min(theta, live)]


def test_clamp_by_largest_remainder():
    # delays 1, 2, 4 of 7; 3 allowed: 3/7, 6/7, 12/7 -> 0, 0, 1 and the two largest rests.
    assert clamp([2, 3, 5], 4) == [1, 2, 3]
    assert clamp([2, 2, 2], 2) == [2, 1, 1], "ties go to the first member"
    assert clamp([5, 5], 0) == [1, 1]


def ready(uid: int, **options: object) -> Visit:
    return make_visit(uid, 4, 3, **options)


def uids(visits: list[Visit], threshold: int, limits: Limits = WIDE, overdue: bool = False):
    return [(visit.uid, n) for visit, n in choose(visits, threshold, limits, overdue)]


def test_fewer_than_the_threshold_wait_and_more_than_it_all_join():
    assert uids([ready(1), ready(2)], threshold=3) == []
    assert uids([ready(4), ready(1), ready(3), ready(2)], threshold=3) == [
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 1),
    ]


def test_nothing_at_all_is_never_due():
    assert uids([], threshold=1) == []
    assert uids([], threshold=1, overdue=True) == []


def test_a_visit_that_is_not_counted_never_waits_and_takes_the_others_along():
    assert uids([ready(2), ready(1, counted=False)], threshold=9) == [(1, 1), (2, 1)]


def test_a_visit_that_is_not_counted_does_not_count_towards_a_threshold():
    assert uids([ready(1, counted=False)], threshold=2) == [(1, 1)]
    # Two visits are ready, one counts: without the uncounted one nothing is due.
    assert uids([ready(2)], threshold=2) == []


def test_overdue_visits_launch_whatever_the_threshold():
    assert uids([ready(1)], threshold=9, overdue=True) == [(1, 1)]
    assert choose([ready(1)], 9, WIDE) == [], "they are not, unless it is said"


def test_parked_and_blocked_visits_do_nothing():
    assert uids([ready(1, control=False), ready(2, blocked=True)], threshold=1) == []
    assert uids([ready(1), ready(2, blocked=True)], threshold=2) == []


def test_a_prefill_waits_for_nothing_and_ready_visits_join_it():
    limits = Limits(8, 10)
    prefill = make_visit(1, 30)
    assert uids([prefill], 9, limits) == [(1, 11)]
    # Ready ones come first, whatever their age; the rest of the chunk is the prefill's.
    assert uids([prefill, make_visit(5, 7, 3)], 9, limits) == [(5, 4), (1, 8)]


def test_a_prefill_goes_on_however_many_are_ready():
    prefill = make_visit(1, 40)
    returning = [make_visit(uid, 10, 5) for uid in (2, 3, 4, 5)]
    # A chunk of 10 keeps 3 for the prefill, and a batch of 4 keeps it a place.
    assert uids([prefill, *returning], 1, Limits(8, 10)) == [(2, 5), (3, 4), (1, 4)]
    assert uids([prefill, *(ready(uid) for uid in range(2, 9))], 1, Limits(4, 10)) == [
        (2, 1), (3, 1), (4, 1), (1, 11),
    ]  # fmt: skip


def test_what_one_chunk_covers_is_ready_and_waits():
    limits = Limits(8, 10)
    assert uids([make_visit(1, 11)], 2, limits) == []
    assert uids([make_visit(1, 12)], 2, limits) == [(1, 11)]


def test_early_prompts_run_only_when_no_ready_batch_is_due():
    early = make_visit(1, 30, control=False, eager=True)
    assert uids([early, ready(2)], threshold=1) == [(2, 1)]
    assert uids([early, ready(2)], threshold=2) == [(2, 1), (1, 30)]
    assert uids([early], threshold=9) == [(1, 30)]


def test_early_work_ends_with_the_prompt():
    done = make_visit(1, 30, 30, control=False, eager=True)
    not_asked = make_visit(2, 30, control=False)
    evicted = make_visit(3, 30, 0, prompt=10, control=False)
    assert uids([done, not_asked, evicted], threshold=1) == []


def test_at_most_so_many_visits_oldest_first():
    visits = [ready(uid) for uid in (5, 3, 9, 1)]
    assert uids(visits, 1, Limits(2, 100)) == [(1, 1), (3, 1)]


def test_the_token_budget_goes_to_the_oldest_and_single_tokens_need_none():
    limits = Limits(8, 5)
    visits = [make_visit(1, 8, 4), make_visit(2, 8, 3), make_visit(3, 8, 6), ready(4)]
    # 4 - 1 of the budget of 5, then the 2 that are left, then none; the single token joins.
    assert uids(visits, 1, limits) == [(1, 4), (2, 3), (4, 1)]


visit_lists = st.lists(
    st.builds(
        lambda length, pending, control, counted, eager, blocked: (
            length,
            min(pending, length),
            control,
            counted,
            eager,
            blocked,
        ),
        st.integers(1, 30),
        st.integers(1, 30),
        *[st.booleans()] * 4,
    ),
    max_size=12,
)


@quick
@given(
    visit_lists,
    st.integers(1, 8),
    st.integers(1, 6),
    st.integers(1, 12),
    st.booleans(),
    st.permutations(range(12)),
)
def test_every_choice_obeys_every_rule(specs, threshold, most, chunk, overdue, order):
    visits = [
        make_visit(order[i], length, length - pending, control=control, counted=counted,
                   eager=eager, blocked=blocked and control)
        for i, (length, pending, control, counted, eager, blocked) in enumerate(specs)
    ]  # fmt: skip
    work = choose(visits, threshold, Limits(most, chunk), overdue)
    assert work == choose(list(reversed(visits)), threshold, Limits(most, chunk), overdue)

    able = [visit for visit in visits if visit.control and not visit.blocked]
    ready = [visit for visit in able if visit.pending <= 1 + chunk]
    prefilling = [visit for visit in able if visit.pending > 1 + chunk]
    early = [visit for visit in visits if not visit.control and visit.eager]
    due = bool(ready) and (
        overdue
        or any(not visit.counted for visit in ready)
        or len([visit for visit in ready if visit.counted]) >= threshold
    )
    assert bool(work) == (due or bool(prefilling) or bool(early))
    if not work:
        return
    chosen = [visit for visit, _ in work]
    rank = {visit.uid: (kind, visit.uid) for kind, group in enumerate((ready, prefilling, early))
            for visit in group}  # fmt: skip
    assert [rank[visit.uid] for visit in chosen] == sorted(rank[visit.uid] for visit in chosen)
    assert all(1 <= n <= visit.pending for visit, n in work)
    assert len(work) <= most
    assert sum(n - 1 for _, n in work) <= chunk
    if due:
        assert not any(visit in early for visit in chosen)
    # Nobody is left out, or fed less than there is, except for a limit that is reached.
    spent = sum(n - 1 for _, n in work) == chunk
    candidates = sorted(rank[v.uid] for v in [*ready, *prefilling, *([] if due else early)])
    for kind, uid in candidates[:most]:
        fed = next((n for visit, n in work if visit.uid == uid), 0)
        pending = next(visit.pending for visit in visits if visit.uid == uid)
        assert fed == pending or (spent and fed < pending), (kind, uid)


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_a_threshold_that_is_met_is_no_reason_to_hold_anyone_back(threshold: int):
    assert len(uids([ready(uid) for uid in range(3)], threshold)) == 3


def drafted(uid: int, drafts: int) -> Visit:
    """A visit that was handed ``drafts`` after 4 tokens in KV."""
    visit = make_visit(uid, 4 + drafts, 3)
    visit.unchecked = drafts
    return visit


def test_checks_of_one_step_are_bounded_and_go_to_the_oldest():
    """Each costs logits over the whole vocabulary."""
    limits = Limits(8, 100, checks=6)
    assert uids([drafted(1, 4), drafted(2, 4)], 1, limits) == [(1, 5), (2, 2)]
    assert uids([drafted(1, 6), drafted(2, 4), ready(3)], 1, limits) == [(1, 7), (3, 1)]


def test_more_drafts_than_one_step_may_check_wait_for_nothing():
    limits = Limits(8, 100, checks=6)
    assert uids([drafted(1, 6)], 2, limits) == []
    long = drafted(1, 15)
    fed = []
    while len(long.to_check(long.pending)) > 6:
        ((_, n),) = choose([long], 2, limits)
        fed.append(n)
        long.computed += n
    assert fed == [6, 6]
    assert choose([long], 1, limits) == [(long, 4)]
