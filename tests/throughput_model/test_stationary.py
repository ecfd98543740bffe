"""The law of hand-made chains."""

import numpy
import pytest

from tokenrouter.throughput_model.chain import Chain
from tokenrouter.throughput_model.stationary import classes, law


def chain(matrix: list[list[float]]) -> Chain:
    """One model whose transitions all take one tick."""
    odds = numpy.array(matrix)
    sources, targets = numpy.nonzero(odds)
    size = len(odds)
    ones = numpy.ones((size, 1), numpy.int32)
    first = numpy.searchsorted(sources, numpy.arange(size + 1))
    return Chain(
        tick_ms=1.0,
        queue=0 * ones,
        batch=ones,
        wait=ones[:, 0],
        ends=0 * ones[:, 0],
        first=first.astype(numpy.int64),
        targets=targets.astype(numpy.int32),
        odds=odds[sources, targets],
    )


def shares(matrix: list[list[float]]) -> numpy.ndarray:
    made = chain(matrix)
    ((weight, members),) = classes(made)
    assert weight == 1
    return law(made, members, numpy.ones(made.size))


def test_the_law_balances() -> None:
    assert shares([[0.5, 0.5, 0], [0.25, 0.5, 0.25], [0, 0.5, 0.5]]) == pytest.approx(
        [0.25, 0.5, 0.25], rel=1e-10
    )


def test_states_that_are_left_for_ever_have_no_share() -> None:
    assert shares([[0, 1, 0], [0, 0, 1], [0, 0.5, 0.5]]) == pytest.approx([0, 1 / 3, 2 / 3])


def test_a_state_that_is_never_left_has_all_of_it() -> None:
    assert shares([[0.5, 0.5], [0, 1]]) == pytest.approx([0, 1])


@pytest.mark.parametrize("period", [2, 3, 7])
def test_a_periodic_chain_is_spread_evenly(period: int) -> None:
    ring = numpy.roll(numpy.eye(period), 1, axis=1).tolist()
    assert shares(ring) == pytest.approx([1 / period] * period)


def test_a_chain_that_settles_slowly_is_solved_directly() -> None:
    """Two halves between which a transition in a million goes: sweeps do not get there."""
    rare = 1e-6
    half = numpy.full((3, 3), 1 / 3)
    matrix = numpy.block([[half, 0 * half], [0 * half, half]])
    matrix[0, 0], matrix[0, 3] = 1 / 3 - rare, rare
    matrix[3, 3], matrix[3, 0] = 1 / 3 - 3 * rare, 3 * rare
    found = shares(matrix.tolist())
    assert found[:3].sum() == pytest.approx(0.75, abs=1e-5)
    assert found @ matrix == pytest.approx(found, abs=1e-14)


def test_classes_are_weighed_by_how_likely_the_start_ends_in_each() -> None:
    made = chain([[0.5, 0.25, 0.25, 0], [0, 0, 0.5, 0.5], [0, 0, 1, 0], [0, 0, 0, 1]])
    found = {tuple(members): weight for weight, members in classes(made)}
    assert found == pytest.approx({(2,): 0.75, (3,): 0.25})
