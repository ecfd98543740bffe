import itertools

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model import systems
from tokenrouter.throughput_model.chain import exact
from tokenrouter.throughput_model.count_simulation import simulate
from tokenrouter.throughput_model.parameters import Latency, Model, System
from tokenrouter.throughput_model.search import search
from tokenrouter.throughput_model.search.tables import _monotone, table


def r2r(p: float = 0.35, large: Latency | None = None, max_batch: int | None = None) -> System:
    models = (
        Model("small", Latency(base=6.0, per_request=0.1)),
        Model("large", large or Latency(base=27.9, per_request=0.3), max_batch),
    )
    return systems.r2r(models, p)


@some.composite
def cases(draw):
    """A system, the largest number of requests, the present one, and fixed thresholds."""
    count = draw(some.integers(1, 4))
    times = some.integers(1, 30).map(float)
    models = tuple(
        Model(f"m{index}", Latency(base=draw(times)), draw(some.none() | some.integers(1, 8)))
        for index in range(count)
    )
    weights = numpy.array(
        [[draw(some.floats(0.05, 1)) for _ in range(count)] for _ in range(count)]
    )
    system = System(models, weights / weights.sum(axis=1)[:, None], numpy.ones((count, count)))
    largest = draw(some.integers(1, 40))
    at = draw(some.none() | some.integers(1, largest))
    fixed = draw(some.dictionaries(some.integers(0, count - 1), some.integers(1, 12), max_size=2))
    return system, largest, at, fixed


@settings(max_examples=6, deadline=None)
@given(cases())
def test_every_row_is_feasible_and_none_is_above_a_later_one(case):
    check_rows(*case)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(cases())
def test_rows_of_many_systems(case):
    check_rows(*case)


def check_rows(system: System, largest: int, at: int | None, fixed: dict[int, int]) -> None:
    rows = table(system, largest, at, fixed)
    again = table(system, largest, at, fixed, previous=rows[: largest // 2], seed=1)
    for found in (rows, again):
        assert len(found) == largest
        for live, row in enumerate(found, start=1):
            assert system.check(live, row) == row
        for row, later in itertools.pairwise(found):
            assert all(a <= b for a, b in zip(row, later, strict=True))
    whole = {index: min(each, system.limit(index, 1000)) for index, each in fixed.items()}
    if sum(whole.values()) - len(whole) < largest:
        assert {index: rows[-1][index] for index in whole} == whole


@pytest.mark.parametrize("at", [3, 8, 24])
def test_what_is_served_now_has_its_best(at):
    system = r2r()
    row = table(system, 32, at)[at - 1]
    best = search.best(system, at).best
    (found,) = simulate.predict(system, at, [row], seed=5)
    assert found.tokens_per_s == pytest.approx(best.tokens_per_s, rel=0.004)


def test_few_requests_have_their_best_too_where_that_is_monotone():
    system = r2r()
    rows = table(system, 8)
    for live in (2, 3, 4):
        rates = {
            each: exact.predict(system, live, each).tokens_per_s
            for each in search.feasible(system, live)
        }
        assert rates[rows[live - 1]] == pytest.approx(max(rates.values()), rel=0.002)


def test_a_crowd_that_gains_nothing_does_not_cost_the_few_their_gain():
    """The large model is always busy at 48 requests; at 4, a threshold of 3 brings 8 %."""
    system = r2r(large=Latency(base=27.9, per_request=1.3), max_batch=8)
    rows = table(system, 48, at=48)
    assert rows[3] == (1, 3)
    one, own = simulate.predict(system, 48, [(1, 1), rows[47]])
    assert own.tokens_per_s == pytest.approx(one.tokens_per_s, rel=0.002)


def test_a_margin_that_nothing_reaches_leaves_all_at_one():
    assert set(table(r2r(), 12, at=4, margin=0.5)) == {(1, 1)}


def test_fixed_thresholds_are_whole_as_soon_as_they_may_be():
    rows = table(r2r(), 12, at=8, fixed={1: 5})
    assert [row[1] for row in rows] == [1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5]
    assert {row[0] for row in rows[:5]} == {1}


def test_a_sequence_of_candidates_that_agree_is_worth_more_than_the_best_of_each():
    one, two = (1, 1), (1, 4)
    values = [{one: 0.0, two: 0.3}, {one: 0.1, two: 0.0}, {one: 0.0, two: 0.3}]
    assert _monotone(values) == [two, two, two]
    values[1][one] = 0.4
    assert _monotone(values) == [one, one, two]
    assert _monotone([{one: 0.0, two: 0.0}]) == [one]


def test_a_table_needs_a_row_for_what_is_served_now():
    with pytest.raises(ConfigError, match="largest"):
        table(r2r(), 4, at=5)
    with pytest.raises(ConfigError, match="largest"):
        table(r2r(), 0)
