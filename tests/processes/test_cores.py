"""Every member has its own cores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenrouter.processes.cores import share


@pytest.mark.parametrize(
    ("cores", "sizes", "shares"),
    [
        ([0, 1], [1, 100], [(0,), (1,)]),
        ([4, 5, 6, 7], [1, 3], [(4,), (5, 6, 7)]),
        ([0, 1, 2, 3], [5, 5], [(0, 1), (2, 3)]),
        ([0, 1, 2, 3], [0, 7, 0], [(), (0, 1, 2, 3), ()]),
        ([0], [1, 1], [(), ()]),
        ([0, 1], [0, 0], [(), ()]),
    ],
)
def test_in_proportion_to_size(
    cores: list[int], sizes: list[int], shares: list[tuple[int, ...]]
) -> None:
    assert share(cores, sizes) == [[own] for own in shares]


@pytest.mark.parametrize(
    ("count", "ranks", "shares"),
    [
        (7, [1, 2], [[(0,)], [(1, 2, 3), (4, 5, 6)]]),
        (6, [1, 2], [[(0, 1)], [(2, 3), (4, 5)]]),
        (3, [1, 2], [[(0,)], [(1,), (2,)]]),
        (2, [1, 2], [[()], [(), ()]]),
        (9, [4, 2], [[(0,), (1,), (2,), (3,)], [(4, 5), (6, 7)]]),
    ],
)
def test_the_ranks_of_a_member_get_equal_numbers(
    count: int, ranks: list[int], shares: list[list[tuple[int, ...]]]
) -> None:
    assert share(range(count), [1, 9], ranks) == shares


@given(st.integers(1, 64), st.lists(st.integers(1, 10**11), min_size=1, max_size=8))
def test_all_cores_are_given_once_and_everybody_gets_one(count: int, sizes: list[int]) -> None:
    shares = share(range(count), sizes)
    if count < len(sizes):
        assert shares == [[()]] * len(sizes)
    else:
        assert [core for [cores] in shares for core in cores] == list(range(count))
        assert all(cores for [cores] in shares)
