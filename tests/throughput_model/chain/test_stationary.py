"""The law of hand-made chains."""

import numpy
import pytest

from tokenrouter.throughput_model.chain import stationary
from tokenrouter.throughput_model.chain.chain import Chain, TooManyStatesError, explore
from tokenrouter.throughput_model.chain.stationary import classes, law
from tokenrouter.throughput_model.parameters import Latency, Model
from tokenrouter.throughput_model.systems import query_level


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


RARE = 1e-6
HALF = numpy.full((3, 3), 1 / 3)
SLOW = numpy.block([[HALF, 0 * HALF], [0 * HALF, HALF]])
"""Two halves between which one transition in a million goes."""
SLOW[0, 0], SLOW[0, 3] = 1 / 3 - RARE, RARE
SLOW[3, 3], SLOW[3, 0] = 1 / 3 - 3 * RARE, 3 * RARE


def test_a_chain_that_sweeps_do_not_settle_is_solved_directly() -> None:
    found = shares(SLOW.tolist())
    assert found[:3].sum() == pytest.approx(0.75, abs=1e-5)
    assert found @ SLOW == pytest.approx(found, abs=1e-14)


def test_a_large_chain_that_sweeps_do_not_settle_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stationary, "DIRECT_MOST", 5)
    with pytest.raises(TooManyStatesError, match="6 states settle too slowly to be solved; "):
        shares(SLOW.tolist())


def test_requests_that_rarely_change_models_are_settled_in_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a few rounds, which do not do without the groups; and not directly."""
    monkeypatch.setattr(stationary, "DIRECT_MOST", 0)
    monkeypatch.setattr(stationary, "ROUNDS", 14)
    models = tuple(Model(name, Latency(ms)) for name, ms in zip("abc", (2, 7, 5), strict=True))
    system = query_level(models, (0.5, 0.3, 0.2), mean_tokens=60, tick_ms=1.0)
    made = explore(system, 6, (1, 1, 1), 20_000)
    ((_, members),) = classes(made)
    found = law(made, members, numpy.ones(made.size))
    flow = numpy.zeros(made.size)
    numpy.add.at(flow, made.targets, numpy.repeat(found, numpy.diff(made.first)) * made.odds)
    assert flow == pytest.approx(found, abs=1e-11)
    monkeypatch.setattr(stationary, "_regrouped", lambda *given: given[-1])
    with pytest.raises(TooManyStatesError):
        law(made, members, numpy.ones(made.size))


def test_classes_are_weighed_by_how_likely_the_start_ends_in_each() -> None:
    made = chain([[0.5, 0.25, 0.25, 0], [0, 0, 0.5, 0.5], [0, 0, 1, 0], [0, 0, 0, 1]])
    found = {tuple(members): weight for weight, members in classes(made)}
    assert found == pytest.approx({(2,): 0.75, (3,): 0.25})
