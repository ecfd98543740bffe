"""What counts as a member's longest step."""

from __future__ import annotations

import random

import pytest

from tokenrouter.subserver.longest import MEMORY, WARM_UP, LongestStep


def fed(longest: LongestStep, size: int, *steps: float) -> float:
    for seconds in steps:
        longest.add(size, seconds)
    return longest.seconds


def test_it_is_the_longest_mean_of_any_size() -> None:
    longest = LongestStep()
    assert fed(longest, 4, *[0.02] * 10) == pytest.approx(0.02)
    assert fed(longest, 16, *[0.03] * 10) == pytest.approx(0.03)
    assert fed(longest, 1, *[0.01] * 10) == pytest.approx(0.03)


def test_first_steps_of_a_size_do_not_count() -> None:
    longest = LongestStep()
    assert fed(longest, 4, *[5.0] * (WARM_UP - 1)) == 0.0
    assert fed(longest, 4, 0.02) == 0.02
    assert fed(longest, 8, 5.0) == 0.02


def test_one_hiccup_hardly_counts_and_is_forgotten() -> None:
    longest = LongestStep()
    fed(longest, 4, *[0.02] * 100)
    assert fed(longest, 4, 60.0) < 0.022
    assert fed(longest, 4, *[0.02] * 100) == pytest.approx(0.02, rel=0.1)


def test_a_machine_that_is_slower_from_now_on_does() -> None:
    longest = LongestStep()
    fed(longest, 4, *[0.02] * 10_000)
    assert fed(longest, 4, *[0.06] * 4 * MEMORY) == pytest.approx(0.06, rel=0.1)
    assert fed(longest, 4, *[0.01] * 4 * MEMORY) == pytest.approx(0.01, rel=0.1)


def test_small_changes_are_not_told() -> None:
    longest, rng = LongestStep(), random.Random(1)
    told = {fed(longest, 4, rng.gauss(0.02, 0.0003)) for _ in range(1000)}
    assert len(told - {0.0}) == 1
