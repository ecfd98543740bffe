"""Which vectors a plan looks at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.throughput_model.plans import MODELS, pair
from tokenrouter.throughput_model.parameters import System
from tokenrouter.throughput_model.planning.candidates import (
    BETWEEN,
    EVERY,
    TRIED,
    between,
    candidates,
    count,
    left_out,
)
from tokenrouter.throughput_model.search.search import feasible
from tokenrouter.throughput_model.systems import cascade


def limited(*limits: int | None) -> System:
    """Models in a row with these batch limits."""
    models = [
        replace(MODELS[0], name=str(index), max_batch=limit) for index, limit in enumerate(limits)
    ]
    return cascade(models, [0.3] * (len(limits) - 1))


@pytest.mark.parametrize("limits", [(None,), (None, None), (2, None), (3, 2, None), (1, 4, 2, 9)])
@pytest.mark.parametrize("concurrency", [1, 2, 3, 7])
def test_they_are_counted_without_listing_them(
    limits: tuple[int | None, ...], concurrency: int
) -> None:
    system = limited(*limits)
    assert count(system, concurrency) == len(list(feasible(system, concurrency)))


def test_the_number_may_be_large() -> None:
    assert count(limited(*[None] * 4), 256) == 183_181_376  # (259 choose 4)


def test_all_where_they_are_few() -> None:
    assert count(pair(), 16) == 136 <= EVERY
    assert candidates(pair(), 4) == [
        *((1, large) for large in (1, 2, 3, 4)),
        *((2, large) for large in (1, 2, 3)),
        *((3, large) for large in (1, 2)),
        (4, 1),
    ]


def test_what_a_search_tried_where_they_are_many() -> None:
    assert count(pair(), 24) == 300 > EVERY
    found = candidates(pair(), 24)
    assert len(found) <= TRIED + BETWEEN + 3
    assert {(1, 1), (24, 1)} < set(found)
    assert any(small > 1 and large > 8 for small, large in found)  # near the best one
    assert any(small == 1 and 3 < large < 6 for small, large in found)  # on the way there
    assert all(pair().check(24, each) for each in found)


def test_vectors_between_ones_and_the_best() -> None:
    assert between((1, 9)) == {(1, large) for large in range(1, 10)}
    assert between((1, 2, 5)) == {(1, b, c) for b in (1, 2) for c in (1, 2, 4, 5)}
    four = between((9, 9, 9, 9))
    assert len(four) == 81 <= BETWEEN
    assert {(1, 1, 1, 1), (9, 9, 9, 9), (1, 5, 9, 1)} < four


def test_those_given_as_far_as_they_are_feasible() -> None:
    assert candidates(pair(), 2, [(1, 2), (2, 2), (1, 1)]) == [(1, 2), (1, 1)]
    assert candidates(pair(), 2, [(2, 2), (2, 3)]) == []
    [(vector, why)] = left_out(pair(), 2, [(2, 2), (1, 1)]).items()
    assert vector == (2, 2)
    assert why.startswith("[2, 2] can deadlock 2 requests: ")


@pytest.mark.parametrize("models", [7, 16])
def test_many_models(models: int) -> None:
    along = between((9,) * models)
    assert along == {(each,) * models for each in range(1, 10)}
