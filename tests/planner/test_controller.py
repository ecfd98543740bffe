"""Thresholds that set themselves, in simulated time: how soon, how often, and for what."""

from __future__ import annotations

import logging
import math
import re

import pytest

from tests.planner.simulated import World
from tokenrouter.ipc.messages import DETOKENIZER, FRONT_END, Message
from tokenrouter.ipc.operations import Inspect, Plan
from tokenrouter.ipc.supervision import Down, Up
from tokenrouter.planner.problem import Problem, Solution
from tokenrouter.throughput_model import systems
from tokenrouter.throughput_model.count_simulation import simulate
from tokenrouter.throughput_model.parameters import Latency, Model, Thresholds
from tokenrouter.throughput_model.search import search

ONES = (1, 1)


def outlook(requests: int, p: float, small_ms: float, large_ms: float) -> dict[Thresholds, float]:
    """Tokens a second of all thresholds."""
    models = [Model("small", Latency(small_ms)), Model("large", Latency(large_ms))]
    system = systems.r2r(models, p)
    found = simulate.predict(system, requests, [*search.feasible(system, requests)], 20_000)
    return {each.thresholds: each.tokens_per_s for each in found}


def most_in_a_minute(times: list[float]) -> int:
    return max((sum(begin <= t < begin + 60 for t in times) for begin in times), default=0)


def test_it_finds_the_best_within_seconds_and_stays_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    world = World(4)
    world.run(6)
    assert world.row == (1, 3)
    world.run(20)
    assert world.row == (1, 3)
    assert len(world.seen) == 1
    [line] = caplog.messages
    assert line.startswith("thresholds for 4 live requests: small 1, large 3 (was 1); ")
    assert "% more tokens/s expected than from thresholds of 1 (model, " in line
    assert re.search(r"small to large 0\.3\d+; steps: small 6 ms for 2, large 2[78]\S* ms", line)
    last = world.planned[-1]
    assert (last.changes, last.concurrency, last.table[3]) == (1, 4, (1, 3))
    assert last.gain == pytest.approx(1.11, abs=0.01)
    assert last.version == 1


@pytest.mark.parametrize(
    ("requests", "p"), [(64, 0.05), pytest.param(64, 0.1, marks=pytest.mark.slow), (2, 0.05)]
)
def test_where_little_can_be_gained_nothing_is_changed(requests: int, p: float) -> None:
    world = World(requests, p)
    world.run(12)
    assert world.row == ONES
    assert world.seen == []
    assert world.planned[-1].gain == 1.0


@pytest.mark.parametrize(
    "step_ms",
    [
        (18.0, 83.7),
        pytest.param((6.0, 83.7), marks=pytest.mark.slow),
        pytest.param((18.0, 27.9), marks=pytest.mark.slow),
    ],
)
def test_after_a_shift_the_new_best_is_there_soon(step_ms: tuple[float, float]) -> None:
    world = World(4)
    world.run(20)
    world.p, world.step_ms = 0.117, step_ms
    world.run(12)
    predicted = outlook(4, 0.117, *step_ms)
    assert predicted[world.row] > 0.975 * max(predicted.values())
    world.run(20)
    assert predicted[world.row] > 0.975 * max(predicted.values())
    assert len(world.seen) <= 3


def test_the_table_follows_the_number_of_requests() -> None:
    world = World(2)
    world.run(10)
    assert world.row == (1, 2)
    world.set_requests(16)
    world.run(20)
    predicted = outlook(16, 0.35, 6.0, 27.9)
    assert predicted[world.row] > 0.985 * max(predicted.values())
    world.set_requests(1)
    assert world.row == ONES
    world.run(10)
    world.set_requests(0)
    world.run(5)


def test_a_member_that_was_started_again_is_told_again() -> None:
    world = World(4)
    world.run(10)
    world.restart_member(1)
    assert world.row == ONES
    world.run(2)
    assert world.row == (1, 3)
    assert world.members[1].thresholds.version == world.members[0].thresholds.version
    world.run(8)
    assert world.row == (1, 3)


def test_a_planner_that_was_started_again_leaves_things_as_they_are_until_it_knows_better() -> None:
    world = World(4)
    world.run(10)
    version = world.members[0].thresholds.version
    world.restart_planner()
    world.run(1)
    assert world.row == (1, 3)
    world.run(9)
    assert world.row == (1, 3)
    assert world.members[0].thresholds.version == version + 2
    world.p = 0.02
    world.restart_planner()
    world.run(8)
    assert world.row == ONES, "what it finds is not known to be good"


def test_a_plan_that_was_lost_is_sent_again() -> None:
    lost: list[Message] = []

    def loses(member: int, message: Message) -> bool:
        if isinstance(message, Plan) and member == 1 and len(lost) < 2:
            lost.append(message)
            return True
        return False

    world = World(4, loses=loses)
    world.run(15)
    assert len(lost) == 2
    assert world.row == (1, 3)


def test_nothing_is_solved_without_traffic_or_for_one_request() -> None:
    for requests in (0, 1):
        asked: list[Problem] = []
        world = World(requests, solver=lambda problem: asked.append(problem))  # noqa: B023
        world.run(30)
        assert asked == []


def test_a_member_is_asked_once_until_it_answers() -> None:
    questions: list[int] = []

    def loses(member: int, message: Message) -> bool:
        questions.append(member)
        return isinstance(message, Inspect) and member == 1

    World(4, loses=loses).run(10)
    assert questions.count(0) == 10
    assert questions.count(1) == 1


def test_thresholds_of_the_user_stay() -> None:
    world = World(8, wanted=(3, "auto"))
    world.run(10)
    assert world.row[0] == 3
    assert world.row[1] > 1
    assert all(row[0] == min(3, live) for live, row in enumerate(world.planned[-1].table, 1))


@pytest.mark.parametrize("seconds", [0.5, 10.0])
def test_thresholds_of_the_user_stay_where_a_member_was_started_again(seconds: float) -> None:
    """Before the first plan, after which nobody would tell it, and beside members with one."""
    world = World(8, wanted=("auto", 3), p=0.05)
    world.run(seconds)
    world.restart_member(1)
    assert world.row[1] == 3
    world.run(3)
    assert world.row[1] == 3


def test_however_good_the_news_there_are_two_changes_a_minute_at_most() -> None:
    """A solver that always promises 10 % for something else, while nothing happens."""
    tables = ([(1, 1), (1, 2)], [(1, 1), (2, 1)])
    count = 0

    def fickle(problem: Problem) -> Solution:
        nonlocal count
        count += 1
        return Solution(problem.live, tables[count % 2], 1.1, 1.1, "a whim", "why not")

    world = World(4, solver=fickle)
    world.run(300)
    times = [t for t, _ in world.seen]
    assert 8 <= len(times) <= 20, "two phases of each show"
    changes = [t for t, row in world.seen if row != ONES]
    assert most_in_a_minute(changes) <= 2


def test_where_something_always_changes_thresholds_do_not_follow() -> None:
    """Every 6 s another latency, as on a machine that does other things as well."""
    tables = ([(1, 1), (1, 2)], [(1, 1), (2, 1)])
    solutions: list[Solution] = []

    def fickle(problem: Problem) -> Solution:
        table = tables[len(solutions) % 2]
        solutions.append(Solution(problem.live, table, 1.1, 1.1, "a whim", "why not"))
        return solutions[-1]

    world = World(4, solver=fickle)
    for beat in range(20):
        world.step_ms = ((6.0, 27.9), (7.5, 33.0))[beat % 2]
        world.run(6)
    changes = [t for t, row in world.seen if row != ONES]
    assert len(changes) <= 8
    assert most_in_a_minute(changes) <= 2


def test_ten_minutes_of_bursts_are_stationary() -> None:
    """Each request sends a tenth of its steps to the large model for a while, then most."""
    world = World(4, bursts=(0.1, 0.6, 1000.0))
    world.run(600)
    times = [t for t, _ in world.seen]
    assert 1 <= len(times) <= 6
    assert most_in_a_minute(times) <= 2


def test_a_shift_that_persists_is_followed_however_many_changes_there_were() -> None:
    tables = ([(1, 1), (1, 2)], [(1, 1), (2, 1)])
    count = 0

    def fickle(problem: Problem) -> Solution:
        nonlocal count
        count += 1
        return Solution(problem.live, tables[count % 2], 1.1, 1.1, "a whim", "why not")

    world = World(4, solver=fickle)
    world.run(30)
    before = world.planned[-1].changes
    assert before == 2
    world.step_ms = (18.0, 83.7)
    world.run(15)
    assert before < world.planned[-1].changes <= before + 2


def test_a_limit_on_gaps_costs_throughput() -> None:
    world = World(4, itl_p99_ms=70.0)
    world.run(10)
    assert world.row == (1, 2), "(1, 3) would be faster"
    assert "99 % of gaps within 6" in world.planned[-1].reason
    world = World(4, itl_p99_ms=20.0)
    world.run(10)
    assert world.row == ONES
    assert "only within" in world.planned[-1].reason


def test_an_algorithm_with_runs_of_one_length_is_simulated_as_recorded() -> None:
    world = World(6, fixed_runs=5)
    world.run(12)
    assert "runs, as those on small are not geometric" in world.planned[-1].reason


def test_a_new_front_end_is_told() -> None:
    world = World(4)
    world.run(7)
    told = len(world.planned)
    for process in (FRONT_END, DETOKENIZER):
        world.controller.hear(process, Down(process), world.now)
        world.controller.hear(process, Up(process, 5), world.now)
        world.run(1)
        told += 1
        assert len(world.planned) == told
        assert world.planned[-1] == world.planned[-2]


def test_measurements_that_make_no_sense_are_tried_again_later() -> None:
    asked: list[float] = []
    world = World(4, solver=lambda problem: asked.append(world.now))
    world.run(60)
    assert 3 <= len(asked) <= 6
    assert world.seen == [] and not math.isnan(asked[0])
