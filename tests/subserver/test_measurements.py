"""What a loop measures for the throughput model."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.subserver.builders import make_visit
from tests.subserver.harness import Deployment
from tokenrouter.ipc.member_state import StepSums
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.subserver.engine import Visit
from tokenrouter.subserver.measurements import LONGEST_RUN, Meter


def writing(uid: int, back: int = 0, **options: object) -> Visit:
    """A visit whose prompt of 4 is computed; ``back``: tokens that were written elsewhere."""
    return make_visit(uid, 5 + back, 4, prompt=4, **options)


def test_a_step_lasts_until_the_next_could_begin():
    meter = Meter(0, 2, 100.0, {})
    for now, work in (
        (101.0, [(writing(1), 1)]),
        (101.5, [(writing(1, 2), 3), (writing(2), 1)]),
        (103.5, [(writing(1, 3), 4), (writing(2), 1)]),
    ):
        meter.launching(now)
        meter.launched(work)
    assert meter.snapshot(104.0).steps[2].count == 1, "the last one is not over"
    meter.launching(104.5)
    meter.launching(109.0)  # nothing was launched: nobody counts the wait
    found = meter.snapshot(110.0)
    assert found.at == 110.0
    assert found.steps == {
        1: StepSums(1, 0.5, 0.25, 1, 1, 0.5),
        2: StepSums(2, 3.0, 5.0, 9, 41, 4 * 2.0 + 5 * 1.0),
    }
    assert found.prefill.count == 0


def test_steps_that_feed_prompts_are_kept_apart():
    meter = Meter(0, 2, 0.0, {})
    for visit, n in (
        (make_visit(1, 4, 0), 4),
        (make_visit(1, 40, 10, prompt=40), 12),
        (make_visit(1, 40, 10, prompt=40), 1),  # the chunk had no more room
        (make_visit(1, 9, 0, prompt=4), 9),  # evicted, or seen here for the first time
        (make_visit(1, 40, 38, prompt=40, control=False, eager=True), 2),
    ):
        meter.launching(0.0)
        meter.launched([(writing(9), 1), (visit, n)])
    meter.launching(0.0)
    found = meter.snapshot(0.0)
    assert (found.prefill.count, found.prefill.tokens) == (5, 4 + 12 + 1 + 9 + 2 + 5)
    # What the prefix cache had all of but the last token is a step like any other.
    for visit in (make_visit(1, 4, 3), make_visit(1, 1, 0)):
        meter.launched([(visit, 1)])
        meter.launching(0.0)
    found = meter.snapshot(0.0)
    assert (found.prefill.count, {size: sums.count for size, sums in found.steps.items()}) == (
        5, {1: 2},
    )  # fmt: skip


def test_a_step_that_was_followed_by_something_else_is_left_out():
    meter = Meter(0, 2, 0.0, {})
    meter.launched([(writing(1), 1)])
    meter.interrupted()
    meter.launching(60.0)
    assert meter.snapshot(60.0).steps[1].count == 0


def test_decisions_of_requests_that_visit_everyone():
    meter = Meter(0, 2, 0.0, {})
    one, two, pinned = writing(1), writing(2), writing(3, counted=False)
    for visit, keep, to in (
        (one, 1, 0), (two, 1, 0), (one, 0, 1), (two, 1, 0), (one, 1, 0), (pinned, 1, 0),
        (two, 2, 1), (pinned, 0, 1), (one, 0, 1),
    ):  # fmt: skip
        meter.decided(visit, keep, to)
    found = meter.snapshot(0.0)
    assert found.hops == {0: (4, 4), 1: (3, 2)}
    assert found.runs == {2: 2, 3: 1}


def test_the_longest_runs_are_counted_as_one_length():
    meter = Meter(0, 2, 0.0, {})
    for steps in (LONGEST_RUN + 7, LONGEST_RUN):
        visit = writing(steps)
        for _ in range(steps - 1):
            meter.decided(visit, 1, 0)
        meter.decided(visit, 1, 1)
    assert meter.snapshot(0.0).runs == {LONGEST_RUN: 2}


def test_live_requests_over_time():
    meter = Meter(0, 2, 10.0, {})
    for now, live in ((12.0, 3), (13.0, 5), (13.5, 0)):
        meter.launching(now)
        meter.live = live
    assert meter.snapshot(20.0).live_seconds == pytest.approx(3 * 1.0 + 5 * 0.5)
    meter.live = 2
    assert meter.snapshot(14.5).live_seconds == pytest.approx(5.5 + 2.0)


def test_what_was_measured_before_it_served_is_handed_on():
    profile = {1: StepSums(3, 0.3, 0.03, 3, 3, 0.3)}
    assert Meter(0, 2, 0.0, profile).snapshot(1.0).profile == profile


@pytest.mark.parametrize("thresholds", [(1, 1), (1, 4)])
def test_a_run_of_two_members(thresholds: tuple[int, int]):
    """Against the answers: who wrote each token of each request."""
    deployment = Deployment(thresholds, seed=3)
    route = Route("random", (0, 1), 0, 0.4, {}, seed=7, token_models=True)
    for uid in range(12):
        deployment.submit(uid, [101, 104 + uid], route, Sampling(40, top_k=1, ignore_eos=True))
    deployment.run()
    small, large = (member.meter.snapshot(deployment.now) for member in deployment.members)
    writers = [answer.models for answer in deployment.answers.values()]
    by_large = sum(models.count(1) for models in writers)
    by_small = sum(models.count(0) for models in writers)
    # The small one's token is dropped where the large one writes, which then hands back.
    assert small.hops == {0: (by_small, by_small), 1: (by_large, 0)}
    assert large.hops == {0: (by_large, by_large)}
    assert large.runs == {1: by_large}
    assert small.runs == runs_before_large(writers)
    for member, found in zip(deployment.members, (small, large), strict=True):
        counts = Counter(deployment.batches[member.member])
        assert sum(sums.count for sums in found.steps.values()) + found.prefill.count == sum(
            counts.values()
        )
        fed = sum(sums.tokens for sums in found.steps.values()) + found.prefill.tokens
        assert fed == member.stats.fed_tokens
        assert found.live_seconds > 0


def runs_before_large(writers: list[list[int]]) -> Counter[int]:
    """Steps of the small model before each token of the large one, its dropped one included."""
    runs: Counter[int] = Counter()
    for models in writers:
        steps = 0
        for writer in models:
            steps += 1
            if writer == 1:
                runs[steps] += 1
                steps = 0
    return runs


def test_the_longest_step_is_at_first_the_profiles_and_never_one_that_feeds_a_prompt():
    profile = {8: StepSums(3, 0.6, 0.12, 24, 192, 4.8), 1: StepSums(2, 0.2, 0.02, 2, 2, 0.2)}
    meter = Meter(0, 2, 0.0, profile)
    assert Meter(0, 2, 0.0, {}).longest_step == 0.0
    assert meter.longest_step == pytest.approx(0.1)
    now = 0.0
    for work, seconds in (([(make_visit(1, 40, 0), 40)], 9.0), ([(writing(1), 1)], 0.3)):
        for _ in range(5):
            meter.launched(work)
            meter.launching(now := now + seconds)
    assert meter.longest_step == pytest.approx(0.3)
