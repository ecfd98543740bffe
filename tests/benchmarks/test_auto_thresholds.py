"""What the benchmark of automatic thresholds makes of what it saw, and whom it lets compete."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from auto_thresholds import captured, cells_of, rest
from contest import AUTO, Effort, Turn, compare, rivals
from drifting import DRIFT_AT, NEW_P
from drifting import NAME as DRIFTING
from intervals import Estimate
from validation import Verdict
from watching import Reading

from tokenrouter.ipc.member_state import Measurements, StepSums
from tokenrouter.schedulers.base import Request, Step
from tokenrouter.schedulers.registry import create

NO_STEPS = StepSums(0, 0.0, 0.0, 0, 0, 0.0)


def reading(at: float, tokens: int, threshold: int = 1, changes: int = 0) -> Reading:
    hops = {0: (tokens, tokens)}
    measured = Measurements(at, {}, NO_STEPS, {}, hops, {}, 0.0)
    return Reading(at, (1, threshold), changes, 2, (measured,), 0)


def turn(speed: float, thresholds: Sequence[tuple[int, int]] = ()) -> Turn:
    """Half a minute at ``speed`` tokens/s after another one; (second, threshold) changes."""
    readings = [reading(99.0, 500)]
    for half in range(61):
        changed = [threshold for second, threshold in thresholds if second <= half / 2]
        count = 500 + round(speed * half / 2)
        readings.append(reading(100.0 + half / 2, count, [1, *changed][-1], len(changed)))
    return Turn(AUTO, 100.0, readings)


def test_the_share_of_a_gain() -> None:
    def of(auto: float, best: float) -> Verdict:
        return captured(Estimate(auto, 0.01), Estimate(best, 0.01), (1, 2))

    assert of(1.09, 1.1).passed
    assert not of(1.07, 1.1).passed
    assert of(1.07, 1.1).what == (
        "70% of the gain (wanted: 80%): 1.07 +- 0.01 of (1, 1), (1, 2): 1.1 +- 0.01"
    )
    assert of(0.995, 1.0).passed, "there was nothing to gain"
    assert not of(0.8, 1.0).passed, "but there was something to lose"


def test_all_fits_its_time() -> None:
    every = cells_of(Effort(seconds=12.0, rounds=1, blocks=24, nice=0))
    assert sum(cell.seconds for cells in every.values() for cell in cells) < 40 * 60
    settings = [cell.what for cell in every["harm"]]
    low = {f"N = {n}, p = {p}" for n in (2, 4, 8, 16, 64) for p in (0.05, 0.1)}
    assert low < set(settings) and len(settings) == len(low) + 1


def test_drifting_coins() -> None:
    algorithm = create(DRIFTING, ["small", "large"], 0.35)
    shares = []
    for positions in (range(DRIFT_AT), range(DRIFT_AT, 2 * DRIFT_AT)):
        requests = [Request(range(1 + position), 1, member=0) for position in positions]
        sent = [algorithm.route(each, Step((7,), {})).to for each in requests]
        shares.append(sum(sent) / len(sent))
    assert shares == pytest.approx([0.35, NEW_P], abs=0.05)


def test_turns_are_compared_over_the_same_tokens() -> None:
    ratio, blocks = compare([(turn(110.0), turn(100.0))], skip_s=10.0, blocks=16)
    assert ratio.value == pytest.approx(1.1, rel=0.01)
    assert 8 <= blocks <= 16


@pytest.mark.parametrize(
    ("changes", "passed"),
    [
        ([(3, 2)], (True, True)),
        ([(3, 2), (12, 3)], (False, True)),
        ([(3, 2), (12, 1), (14, 3), (20, 2)], (True, False)),
    ],
)
def test_rest(changes: Sequence[tuple[int, int]], passed: tuple[bool, bool]) -> None:
    first, second = rest(turn(100.0, changes), 20.0)
    assert (first.passed, second.passed) == passed
    assert first.what.startswith("thresholds (1, 2) after 3.0 s")
    assert second.what == f"{len(changes) - 1} changes in 20 s after that"


def test_the_competition() -> None:
    assert rivals(2) == [(1, 2), (2, 1)]
    assert {*rivals(4), (1, 1)} == {(a, b) for a in range(1, 5) for b in range(1, 6 - a)}
    best = rivals(8)[0]
    neighbours = {(best[0] + 1, best[1]), (best[0], best[1] + 1), (best[0], best[1] - 1)}
    assert neighbours < set(rivals(8)) and len(rivals(8)) < 20
