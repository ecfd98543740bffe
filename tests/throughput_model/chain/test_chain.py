"""States and transitions of systems small enough to be listed by hand."""

import numpy
import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.chain.chain import Chain, explore
from tokenrouter.throughput_model.chain.outcomes import outcomes_of
from tokenrouter.throughput_model.parameters import Latency, Model, System
from tokenrouter.throughput_model.systems import r2r

A, B = Model("a", Latency(2.0)), Model("b", Latency(3.0))
State = tuple[tuple[int, ...], tuple[int, ...], int]


def moves(chain: Chain) -> dict[State, dict[State, float]]:
    """From (queues, batches, ticks until the next completion) to the same, with odds."""
    named = [
        (tuple(map(int, queue)), tuple(map(int, batch)), int(wait))
        for queue, batch, wait in zip(chain.queue, chain.batch, chain.wait, strict=True)
    ]
    return {
        state: {
            named[chain.targets[edge]]: round(float(chain.odds[edge]), 12)
            for edge in range(chain.first[index], chain.first[index + 1])
        }
        for index, state in enumerate(named)
    }


def test_a_lone_request_alternates() -> None:
    found = moves(explore(r2r((A, B), 0.25, 1.0), 1, (1, 1), 100))
    small, large = ((0, 0), (1, 0), 2), ((0, 0), (0, 1), 3)
    assert found == {small: {small: 0.75, large: 0.25}, large: {small: 1.0}}


def test_a_threshold_makes_requests_wait_until_there_are_enough() -> None:
    found = moves(explore(r2r((A, B), 0.5, 1.0), 2, (1, 2), 100))
    both, one, large = ((0, 0), (2, 0), 2), ((0, 1), (1, 0), 2), ((0, 0), (0, 2), 3)
    assert found == {
        both: {both: 0.25, one: 0.5, large: 0.25},
        one: {one: 0.5, large: 0.5},
        large: {both: 1.0},
    }


def test_a_batch_takes_no_more_than_its_limit() -> None:
    limited = Model("a", Latency(2.0), max_batch=2)
    alone = System((limited,), [[1.0]], [[1.0]], 1.0)
    assert moves(explore(alone, 3, (1,), 100)) == {((1,), (2,), 2): {((1,), (2,), 2): 1.0}}


def test_what_ends_together_completes_before_anything_launches() -> None:
    """In two steps between which no time passes; then both launch what came from the other."""
    models = Model("a", Latency(2.0), 1), Model("b", Latency(2.0), 1)
    limited = System(models, [[0, 1], [1, 0]], [[1, 1], [1, 1]], 1.0)
    found = moves(explore(limited, 2, (1, 1), 100))
    first, apart, between = ((1, 0), (1, 0), 2), ((0, 0), (1, 1), 2), ((0, 1), (0, 1), 0)
    assert found == {first: {apart: 1.0}, apart: {between: 1.0}, between: {apart: 1.0}}


def test_latencies_follow_the_batch() -> None:
    growing = Model("a", Latency(1.0, 1.0))
    found = moves(explore(r2r((growing, B), 0.5, 1.0), 2, (2, 1), 100))
    assert {state[2] for state in found if state[1] == (2, 0)} == {3}


def test_requests_are_routed_multinomially() -> None:
    models = A, B, Model("c", Latency(4.0))
    system = System(models, [[0.2, 0.3, 0.5], [1, 0, 0], [1, 0, 0]], numpy.ones((3, 3)), 1.0)
    table = outcomes_of(system, 3, 100)
    rows = slice(table.first[0, 3], table.first[0, 3] + table.rows[0, 3])
    odds = dict(zip(map(tuple, table.moves[rows].tolist()), table.odds[rows], strict=True))
    assert len(odds) == 10 and sum(odds.values()) == pytest.approx(1.0)
    assert odds[1, 1, 1] == pytest.approx(6 * 0.2 * 0.3 * 0.5)
    assert odds[0, 1, 2] == pytest.approx(3 * 0.3 * 0.5**2)


def test_outcomes_too_rare_for_a_float_do_not_happen() -> None:
    table = outcomes_of(r2r((A, B), 1e-200), 2, 100)
    rows = slice(table.first[0, 2], table.first[0, 2] + table.rows[0, 2])
    assert table.moves[rows].tolist() == [[2, 0], [1, 1]]


def test_a_deadlock_that_is_reached_is_refused() -> None:
    """`System.check` keeps such thresholds out; the chain does not rely on it."""
    with pytest.raises(ConfigError, match=r"^thresholds: \[2, 2\] deadlock 2 requests; lower some"):
        explore(r2r((A, B), 0.5, 1.0), 2, (2, 2), 100)
