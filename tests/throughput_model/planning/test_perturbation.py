"""Systems a little different from a given one."""

from __future__ import annotations

import numpy
import pytest

from tests.throughput_model.plans import MODELS, pair
from tokenrouter.throughput_model.parameters import Latency, Model, System
from tokenrouter.throughput_model.planning.perturbation import (
    hops,
    opposite,
    widest,
    with_hand_overs,
    with_hop,
    with_latency,
)
from tokenrouter.throughput_model.systems import cascade, speculative

TABLE = Model("table", Latency(per_token=2.0, table={1: 3.0, 4: 5.0}), max_batch=4)
THREE = cascade([*MODELS, TABLE], [0.3, 0.5])


def test_a_slower_model_is_slower_at_every_size() -> None:
    slower = with_latency(THREE, 2, 1.2)
    assert slower.latencies(2, 4) == pytest.approx(1.2 * THREE.latencies(2, 4))
    assert slower.models[2].max_batch == 4
    assert slower.models[:2] == THREE.models[:2]
    assert with_latency(pair(), 1, 0.8).tick_ms is None  # 0.1 ms need not divide it any more


def test_hops_that_can_change() -> None:
    assert list(hops(pair())) == [(0, 1)]
    assert list(hops(THREE)) == [(0, 1), (1, 0), (1, 2)]


def test_one_hop_changes_and_the_rest_of_its_row_makes_room() -> None:
    system = System(
        THREE.models, numpy.array([[0.5, 0.2, 0.3], [1, 0, 0], [1, 0, 0]]), numpy.ones((3, 3))
    )
    changed = with_hop(system, 0, 1, 1.5)
    assert changed.routing[0] == pytest.approx([0.5 * 0.875, 0.3, 0.3 * 0.875])
    assert changed.routing[1:].tolist() == system.routing[1:].tolist()


def test_a_hop_never_becomes_certain() -> None:
    assert with_hop(pair(0.9), 0, 1, 1.2).routing[0] == pytest.approx([0.001, 0.999])


def test_hand_overs_change_where_there_is_a_choice() -> None:
    assert with_hand_overs(pair(), 1.5).routing == pytest.approx(pair(0.525).routing)
    assert with_hand_overs(pair(0.8), 2.0).routing.tolist() == [[0, 1], [1, 0]]


def test_how_far_hand_overs_can_change() -> None:
    assert widest(pair(0.35), 0.5) == 0.5
    assert widest(pair(0.8), 0.5) == pytest.approx(0.95 * 0.25)
    always = System(MODELS, numpy.array([[0, 1], [1, 0]]), numpy.ones((2, 2)))
    assert widest(always, 0.5) == 0.0


def test_turns_that_even_out() -> None:
    """A share p of tokens is handed over: (p + q) / 2 weighted by tokens a step, 1 / (1 + p)."""
    calm = opposite(pair(0.35), 1.8) * 0.35
    busy = 1.8 * 0.35
    tokens = numpy.array([1 / (1 + calm), 1 / (1 + busy)])
    assert tokens @ [calm, busy] / tokens.sum() == pytest.approx(0.35)
    assert 0.35 / 3 < calm < 0.35 / 2


def test_turns_that_even_out_whatever_steps_commit() -> None:
    system = System(THREE.models, THREE.routing, numpy.array([[1, 0, 0], [2, 0, 1], [5, 0, 0]]))

    def per_step(system: System) -> tuple[float, float]:
        """Hand-overs and tokens, from visits for each token."""
        visits = system.visits_per_token
        leaving = visits @ (1.0 - system.routing.diagonal())
        return leaving / visits.sum(), 1.0 / visits.sum()

    turns = [per_step(with_hand_overs(system, x)) for x in (opposite(system, 1.8), 1.8)]
    handed_over, tokens = numpy.sum(turns, axis=0)
    usual = per_step(system)
    assert handed_over / tokens == pytest.approx(usual[0] / usual[1])


def test_turns_that_cannot_even_out() -> None:
    """Every check of a draft commits as many tokens: the factor changes nothing of that."""
    assert opposite(speculative(MODELS, 0.5, 4), 1.8) == pytest.approx(0.2)
