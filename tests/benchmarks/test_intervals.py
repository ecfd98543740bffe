"""Standard errors tell how far estimates are off, and pairs cancel what runs have in common."""

from __future__ import annotations

import numpy
import pytest
from intervals import Blocks, Estimate, cut, lower_bound, pooled_ratio, ratio


def blocks(seconds: list[float], first: int = 0) -> Blocks:
    return Blocks(100, first, numpy.array(seconds))


def test_whole_blocks_are_cut_where_their_tokens_were_reached() -> None:
    # 100 tokens/s, then 50 from token 450 on; read at odd moments.
    times = [1.0, 1.5, 3.7, 5.7, 14.7]
    tokens = [130.0, 180.0, 400.0, 600.0, 1505.0]
    found = cut(times, tokens, 100)
    assert found.first == 2
    assert found.seconds.tolist() == pytest.approx([1.0, 1.0] + [1.0] * 2 + [9.0 / 9.05] * 9)


def test_too_few_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match=r"800 tokens are no 8 x 101"):
        cut([0.0, 8.0], [0.0, 800.0], 101)
    with pytest.raises(ValueError, match="only 7 blocks in common"):
        ratio(blocks([1.0] * 9), blocks([1.0] * 9, first=2))
    with pytest.raises(ValueError, match="do not compare"):
        ratio(blocks([1.0] * 9), Blocks(50, 0, numpy.ones(9)))


def test_throughput_has_the_standard_error_of_batch_means() -> None:
    rng = numpy.random.default_rng(0)
    runs = [Blocks(100, 0, rng.gamma(25.0, 2.0 / 25.0, size=40)) for _ in range(2000)]
    estimates = [run.throughput for run in runs]
    spread = numpy.std([each.value for each in estimates])
    assert numpy.mean([each.stderr for each in estimates]) == pytest.approx(spread, rel=0.05)
    inside = [abs(each.value - 50.0) <= 2.02 * each.stderr for each in estimates]
    assert numpy.mean(inside) == pytest.approx(0.95, abs=0.02)


def test_what_a_pair_has_in_common_cancels() -> None:
    rng = numpy.random.default_rng(1)
    estimates, apart = [], []
    for _ in range(1000):
        common = rng.gamma(25.0, 1.0 / 25.0, size=30)
        slow = blocks(list(common * 1.1 + rng.normal(0.0, 0.01, size=30)))
        fast = blocks(list(common + rng.normal(0.0, 0.01, size=30)))
        estimates.append(ratio(fast, slow))
        apart.append(fast.throughput.stderr / fast.throughput.value)
    spread = numpy.std([each.value for each in estimates])
    assert numpy.mean([each.value for each in estimates]) == pytest.approx(1.1, abs=0.001)
    assert numpy.mean([each.stderr for each in estimates]) == pytest.approx(spread, rel=0.06)
    assert spread < 0.1 * float(numpy.mean(apart))


def test_only_blocks_that_both_have_are_compared() -> None:
    late = blocks([1.0] * 8 + [100.0] * 3, first=3)
    early = blocks([100.0] * 3 + [2.0] * 8)
    assert ratio(late, early) == Estimate(2.0, 0.0)
    again = pooled_ratio([(late, early), (late, early)])
    assert again == Estimate(2.0, 0.0)


def test_a_lower_bound_is_one_sided() -> None:
    rng = numpy.random.default_rng(2)
    below = []
    for _ in range(2000):
        ours, theirs = rng.normal(1.0, 0.1, size=(2, 10))
        estimate = ratio(blocks(list(ours)), blocks(list(theirs)))
        below.append(lower_bound(estimate, 10) <= 1.0)
    assert numpy.mean(below) == pytest.approx(0.95, abs=0.02)
