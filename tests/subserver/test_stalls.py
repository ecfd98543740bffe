"""Nothing ever waits for ever, whatever happens to thresholds while requests come and go.

Random runs of the real loops (`harness.py`): arrivals, finishes, aborts, prefills in chunks,
eager ones, evictions, delayed messages, requests that do not visit every member, and plans that
members hear of at different times, or, when the planner dies, not at all. Members die, and return
with the thresholds of the configuration. Then twins, which break one rule each: the same runs
must stall.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

import tokenrouter.subserver.thresholds
from tests.subserver.planning import Table
from tests.subserver.runs import Run, random_table
from tokenrouter.planner import publishing
from tokenrouter.subserver.tables import fault_of, lower

QUICK = 150
MANY = 4000


def test_no_run_stalls() -> None:
    assert not [seed for seed in range(QUICK) if Run(seed).stalls()]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_none_of_many_runs_stalls() -> None:
    assert not [seed for seed in range(QUICK, MANY) if Run(seed).stalls()]


def test_the_runs_are_of_every_kind() -> None:
    """Else they would show little."""
    seen: Counter[str] = Counter()
    for seed in range(60):
        for deployment in Run(seed).turns():
            members = deployment.members
            seen["mixed"] += len({member.thresholds.version for member in members}) > 1
            for member in members:
                visits = list(member.visits)
                waiting = [v for v in visits if v.control and v.counted and not v.blocked]
                seen["delayed"] += member._idle and bool(waiting)
                seen["blocked"] += any(visit.blocked for visit in visits)
                seen["pinned"] += any(not visit.counted for visit in visits)
                seen["chunked"] += any(0 < v.computed < v.prompt_length - 1 for v in visits)
        seen["planner given up"] += deployment.given_up
        seen["planner restarted"] += deployment.planner_starts > 1
        seen["member restarted"] += bool(deployment.victims)
        seen["many plans"] += deployment.published > 2
        finishes = [(answer.finish or {}).get("type") for answer in deployment.answers.values()]
        seen["aborted"] += "abort" in finishes
        seen["finished"] += "length" in finishes
    kinds = ["mixed", "delayed", "blocked", "pinned", "chunked", "aborted", "finished"]
    kinds += ["planner restarted", "member restarted", "many plans"]
    assert all(seen[kind] > 15 for kind in kinds), seen
    assert seen["planner given up"] > 5


def test_the_tables_are_legal_and_so_is_what_is_published_between_two() -> None:
    rng = random.Random(1)
    for _ in range(200):
        members = rng.randint(2, 4)
        one, other = (random_table(rng, members, rng.randint(1, 9)) for _ in range(2))
        for table in (one, other, lower(one, other)):
            assert fault_of(table, members) is None


# Twins.


def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members apply any plan."""
    monkeypatch.setattr(tokenrouter.subserver.thresholds, "fault_of", lambda table, members: None)


def test_without_the_clamp_most_runs_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds that do not depend on the number of live requests."""
    unchecked(monkeypatch)
    monkeypatch.setattr(tokenrouter.subserver.thresholds, "fixed_table", lambda wanted: [wanted])
    stalls = sum(Run(seed, clamped=False).stalls() for seed in range(QUICK))
    assert stalls > QUICK / 2


def test_a_change_in_one_phase_may_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two legal tables, each with its delays on other members, are not legal together."""
    monkeypatch.setattr(publishing, "below", lambda one, other: True)
    assert any(Run(seed).stalls() for seed in range(QUICK, 3 * QUICK))


def test_a_threshold_that_falls_as_requests_are_added_may_stall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every row is feasible: but members count different numbers of requests."""

    def uneven(rng: random.Random, members: int, longest: int) -> Table:
        return [
            tuple(1 + (live - 1) * ((live + m) % members == 0) for m in range(members))
            for live in range(1, longest + 1)
        ]

    unchecked(monkeypatch)
    assert any(Run(seed, tables=uneven).stalls() for seed in range(QUICK, 2 * QUICK))
