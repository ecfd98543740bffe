"""Tapes hold what the system says, and the same whatever else is drawn."""

from __future__ import annotations

import dataclasses
import math

import numpy
import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model import systems
from tokenrouter.throughput_model.event_simulation import decisions
from tokenrouter.throughput_model.parameters import Latency, Model, System

STEPS = 40_000


def r2r(p: float) -> System:
    models = (Model("small", Latency(6.0)), Model("large", Latency(27.9)))
    return systems.r2r(models, p)


def places(tapes: decisions.Tapes, request: int) -> numpy.typing.NDArray[numpy.int64]:
    """The model of each step."""
    following = tapes.following[request, : tapes.lengths[request]]
    return numpy.concatenate([tapes.first[request : request + 1], following[:-1]]).astype(int)


def runs(tapes: decisions.Tapes, request: int, model: int) -> dict[int, int]:
    """Lengths of the runs of steps on a model, the last one aside."""
    lengths: dict[int, int] = {}
    run = 0
    for place in places(tapes, request):
        if place == model:
            run += 1
        elif run:
            lengths[run] = lengths.get(run, 0) + 1
            run = 0
    return lengths


def hops(tapes: decisions.Tapes, size: int) -> numpy.typing.NDArray[numpy.float64]:
    counts = numpy.zeros((size, size))
    for request in range(tapes.requests):
        following = tapes.following[request, : tapes.lengths[request]]
        numpy.add.at(counts, (places(tapes, request), following), 1)
    return counts / counts.sum(axis=1, keepdims=True)


def test_draws_follow_the_routing_matrix() -> None:
    routing = numpy.array([[0.2, 0.5, 0.3], [0.9, 0.0, 0.1], [0.05, 0.0, 0.95]])
    committed = numpy.arange(9.0).reshape(3, 3)
    models = tuple(Model(name, Latency(1.0)) for name in "abc")
    tapes = decisions.draw(System(models, routing, committed), 4, STEPS, seed=1)
    assert hops(tapes, 3) == pytest.approx(routing, abs=0.01)
    assert (hops(tapes, 3)[routing == 0] == 0).all()
    for request in range(4):
        length = tapes.lengths[request]
        kept = committed[places(tapes, request), tapes.following[request, :length]]
        assert (tapes.committed[request, :length] == kept).all()


def test_more_requests_or_steps_extend_the_same_tapes() -> None:
    few, many = decisions.draw(r2r(0.3), 2, 100, 5), decisions.draw(r2r(0.3), 6, 1000, 5)
    for request in range(2):
        length = few.lengths[request]
        same = many.following[request, :length]
        assert (few.following[request, :length] == same).all()
    assert (many.following[0] != many.following[1]).any()
    assert (many.following != decisions.draw(r2r(0.3), 6, 1000, 6).following).any()


def test_a_row_whose_last_model_is_impossible_never_leads_there() -> None:
    thirds = numpy.array([[1 / 3, 1 / 3, 1 / 3], [0.7, 0.3, 0.0], [1.0, 0.0, 0.0]])
    models = tuple(Model(name, Latency(1.0)) for name in "abc")
    tapes = decisions.draw(System(models, thirds, numpy.ones((3, 3))), 1, STEPS, seed=2)
    assert hops(tapes, 3)[1, 2] == 0


def test_bursts_alternate_between_two_systems() -> None:
    tapes = decisions.bursty(r2r(0.02), r2r(0.3), 2, STEPS, seed=3, mean_stretch=500.0)
    mean = hops(tapes, 2)[0, 1]
    shares = numpy.array(
        [(tapes.following[0, at : at + 200] == 1).mean() for at in range(0, STEPS - 200, 200)]
    )
    assert 0.1 < mean < 0.2
    assert (shares < 0.06).mean() > 0.25
    assert (shares > 0.15).mean() > 0.25


def test_classes_keep_their_own_routing_and_mix_their_ages() -> None:
    tapes = decisions.classes([(r2r(0.02), 2), (r2r(0.18), 4)], STEPS, seed=4)
    for request, kind in enumerate([1, 0, 1, 1, 0, 1]):
        following = tapes.following[request, : tapes.lengths[request]]
        share = (following[places(tapes, request) == 0] == 1).mean()
        assert share == pytest.approx((0.02, 0.18)[kind], rel=0.15)


def test_runs_have_the_lengths_that_were_measured() -> None:
    measured = ({2: 30, 5: 10}, {1: 1})
    tapes = decisions.from_runs(r2r(0.3), measured, 1, STEPS, seed=5, mean_steps=math.inf)
    drafts = runs(tapes, 0, 0)
    assert set(drafts) == {2, 5}
    assert drafts[2] / drafts[5] == pytest.approx(3.0, rel=0.1)
    assert set(runs(tapes, 0, 1)) == {1}


def test_requests_end_within_runs_after_so_many_steps() -> None:
    tapes = decisions.from_runs(r2r(0.3), ({5: 1}, {1: 1}), 1, STEPS, seed=5, mean_steps=100)
    following = tapes.following[0, : tapes.lengths[0]]
    back = (places(tapes, 0) == 1) & (following == 0)
    assert (places(tapes, 0) == 1).sum() == back.sum()
    drafts = runs(tapes, 0, 0)
    cut = sum(count for length, count in drafts.items() if length % 5)
    assert cut / len(following) == pytest.approx(0.8 * 5 / 6 / 100, rel=0.15)
    with pytest.raises(ConfigError, match=r"mean_steps: must be at least 1 step, got 0.5"):
        decisions.from_runs(r2r(0.3), ({5: 1}, {1: 1}), 1, STEPS, seed=5, mean_steps=0.5)


def test_staggered_requests_decide_the_same_from_elsewhere_on() -> None:
    tapes = decisions.from_runs(r2r(0.3), ({5: 1}, {1: 1}), 16, 2000, seed=5)
    other = decisions.staggered(tapes, 3)
    assert {*other.first} == {0, 1}
    for request, length in enumerate(tapes.lengths):
        loop, again = (
            [*zip(each.following[request, :length], each.committed[request, :length], strict=True)]
            for each in (tapes, other)
        )
        assert any(loop[begin:] + loop[:begin] == again for begin in range(length))


def test_a_model_without_measured_runs_stays_geometric() -> None:
    tapes = decisions.from_runs(r2r(0.25), ({}, {3: 7}), 1, STEPS, seed=6, mean_steps=math.inf)
    lengths = runs(tapes, 0, 0)
    total = sum(lengths.values())
    assert sum(n * count for n, count in lengths.items()) / total == pytest.approx(4.0, rel=0.05)
    assert lengths[1] / total == pytest.approx(0.25, rel=0.1)
    assert set(runs(tapes, 0, 1)) == {3}


@pytest.mark.parametrize("runs_of", [({0: 3}, {1: 1}), ({1: 2},), ({2: -1}, {1: 1})])
def test_impossible_runs_are_refused(runs_of: tuple[dict[int, int], ...]) -> None:
    with pytest.raises(ConfigError, match="runs:"):
        decisions.from_runs(r2r(0.3), runs_of, 1, 100, seed=0)


def test_tapes_too_short_to_come_back_are_refused() -> None:
    there = numpy.array([[0.0, 1.0], [1e-9, 1 - 1e-9]])
    system = System(r2r(0.3).models, there, numpy.ones((2, 2)))
    with pytest.raises(ConfigError, match="draw more steps"):
        decisions.draw(system, 3, 50, seed=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": numpy.array([1, 0], numpy.int8)}, "lead to its first model"),
        ({"first": numpy.array([0], numpy.int8)}, "a first model and a length"),
        ({"lengths": numpy.array([1, 9])}, "from 1 to 2"),
        ({"committed": numpy.full((2, 2), -1, numpy.float32)}, "not negative"),
        ({"committed": numpy.ones((2, 3), numpy.float32)}, "commits"),
        ({"following": numpy.array([[1, 0], [-1, 0]], numpy.int8)}, "from 0"),
    ],
)
def test_tapes_that_make_no_sense_are_refused(changes: dict[str, object], message: str) -> None:
    tapes = decisions.Tapes(
        numpy.zeros(2, numpy.int8),
        numpy.array([[1, 0], [1, 0]], numpy.int8),
        numpy.ones((2, 2), numpy.float32),
        numpy.array([2, 2]),
    )
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(tapes, **changes)
