"""Buckets hold what was observed: bounds belong to the bucket below them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenrouter.histogram import Histogram

VALUES = st.floats(0, 100, allow_nan=False)


def test_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 2.5, 1e9):
        histogram.observe(value)
    counted = histogram.snapshot()
    assert counted.bounds == (1.0, 2.0)
    assert counted.counts == [2, 2, 2]
    assert counted.sum == 1e9 + 7.0


def test_one_value_many_times() -> None:
    histogram = Histogram((1.0,))
    histogram.observe(0.5, 4)
    assert (histogram.snapshot().counts, histogram.snapshot().sum) == ([4, 0], 2.0)


def test_a_snapshot_stays_as_it_is() -> None:
    histogram = Histogram((1.0,))
    before = histogram.snapshot()
    histogram.observe(0.5)
    assert before.counts == [0, 0]


@given(st.lists(VALUES), st.lists(VALUES, min_size=1, unique=True).map(sorted))
def test_counts_are_those_of_a_plain_count(values: list[float], bounds: list[float]) -> None:
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    counted = histogram.snapshot()
    for i, bound in enumerate(bounds):
        assert sum(counted.counts[: i + 1]) == sum(value <= bound for value in values)
    assert sum(counted.counts) == len(values)
    assert counted.sum == pytest.approx(sum(values))
