"""What the benchmark of automatic thresholds makes of what it saw, and whom it lets compete."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from auto_thresholds import captured, rest
from contest import AUTO, Turn, candidates, compare
from watching import Reading

from tokenrouter.ipc.messages import Measurements, StepSums

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
    assert captured(2, 1.09, 1.1).passed
    assert not captured(2, 1.07, 1.1).passed
    assert "N = 2: 70% of the gain: +7.0% of +10.0%" in captured(2, 1.07, 1.1).what
    assert captured(16, 0.995, 1.0).passed, "there was nothing to gain"
    assert not captured(16, 0.8, 1.0).passed, "but there was something to lose"


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
    assert candidates(2)[0] == (1, 2)
    assert sorted(candidates(2)) == [(1, 1), (1, 2), (2, 1)]
    assert len(candidates(4)) == 10
    many = candidates(8)
    assert (1, 1) in many
    assert len(many) < 25
