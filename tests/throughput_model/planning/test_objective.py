"""Which of several predictions is best."""

from __future__ import annotations

import math

from tests.throughput_model.plans import prediction
from tokenrouter.throughput_model.parameters import Thresholds
from tokenrouter.throughput_model.planning.objective import choose, limit_ms

FOUND = [
    prediction((1, 1), 100.0),
    prediction((1, 2), 110.0),
    prediction((2, 1), 90.0),
    prediction((1, 3), 108.0),
]
P99 = {(1, 1): 56.0, (1, 2): 76.0, (2, 1): 50.0, (1, 3): 70.0}


def p99(thresholds: Thresholds) -> float:
    return P99[thresholds]


def never(thresholds: Thresholds) -> float:
    raise AssertionError("gaps do not matter for throughput, and take long to simulate")


def test_the_highest_throughput() -> None:
    assert choose(FOUND, never, "throughput") == (FOUND[1], True)


def test_the_highest_throughput_within_a_limit() -> None:
    assert choose(FOUND, p99, {"itl_p99_ms": 70.0}) == (FOUND[3], True)
    assert choose(FOUND, p99, {"itl_p99_ms": 69.9}) == (FOUND[0], True)
    assert choose(FOUND, p99, {"itl_p99_ms": 1000.0}) == (FOUND[1], True)


def test_the_shortest_gaps_if_none_is_within() -> None:
    assert choose(FOUND, p99, {"itl_p99_ms": 49.0}) == (FOUND[2], False)


def test_noise_raises_no_threshold() -> None:
    noisy = [prediction((1, 1), 100.0, 1.0), prediction((4, 9), 101.9, 1.0)]
    assert choose(noisy, never, "throughput")[0] is noisy[0]
    clear = [prediction((1, 1), 100.0, 1.0), prediction((4, 9), 102.1, 1.0)]
    assert choose(clear, never, "throughput")[0] is clear[1]


def test_of_what_is_the_same_the_lowest_thresholds() -> None:
    same = [prediction((2, 2), 100.0 + 1e-9), prediction((1, 2), 100.0), prediction((1, 1), 99.9)]
    assert choose(same, never, "throughput")[0] is same[1]


def test_the_limit() -> None:
    assert limit_ms("throughput") == math.inf
    assert limit_ms({"itl_p99_ms": 70.0}) == 70.0
