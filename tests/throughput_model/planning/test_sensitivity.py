"""What becomes of a plan when the file is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.throughput_model.plans import outlook, pair, parameters
from tokenrouter.throughput_model.chain.exact import predict
from tokenrouter.throughput_model.parameters import Prediction
from tokenrouter.throughput_model.planning import scoring
from tokenrouter.throughput_model.planning.outlook import Case
from tokenrouter.throughput_model.planning.parameter_file import RequestClass
from tokenrouter.throughput_model.planning.perturbation import with_latency
from tokenrouter.throughput_model.planning.sensitivity import cases, notes

PLAN = outlook(((1, 3), 208.0, 74.0), ((1, 2), 195.0, 64.0), ((1, 1), 187.0, 60.0))


@pytest.fixture(scope="module")
def found() -> dict[str, Case]:
    return {case.what: case for case in cases(parameters(), PLAN)}


def test_there_is_a_line_for_everything(found: dict[str, Case]) -> None:
    assert list(found) == [
        "latency of small -20%",
        "latency of small +20%",
        "latency of large -20%",
        "latency of large +20%",
        "small to large -20%",
        "small to large +20%",
        "half the requests hand over 50% less, half more",
        "hand-overs x 0.43 and x 1.80 by turns",
    ]


def test_each_is_predicted_with_what_changed(found: dict[str, Case]) -> None:
    slower = predict(with_latency(pair(), 1, 1.2), 4, (1, 3)).tokens_per_s
    assert found["latency of large +20%"].kept.tokens_per_s == slower
    likelier = predict(pair(0.42), 4, (1, 3)).tokens_per_s
    assert found["small to large +20%"].kept.tokens_per_s == pytest.approx(likelier)


def test_single_errors_cost_little(found: dict[str, Case]) -> None:
    """A wrong latency or probability costs at most 1 %; nothing here gains by another vector."""
    assert all(0.0 <= case.regret <= 0.01 for case in found.values())
    assert all(case.kept.thresholds == (1, 3) for case in found.values())
    assert all(50 < case.kept_itl_p99_ms < 100 for case in found.values())


def test_bad_thresholds_cost_much() -> None:
    """At p = .05 and two requests, a stale (1, 2) loses a quarter of what (1, 1) gives."""
    stale = outlook(((1, 2), 0.0, 0.0), ((1, 1), 0.0, 0.0), concurrency=2)
    rare = parameters(system=pair(0.05))
    first = next(cases(rare, stale))
    assert (first.best.thresholds, first.kept.thresholds) == ((1, 1), (1, 2))
    assert first.regret == pytest.approx(0.21, abs=0.06)


def test_with_an_objective_the_best_is_within_it() -> None:
    bound = parameters(objective={"itl_p99_ms": 65.0})
    plan = replace(PLAN, best=PLAN.rows[1])
    slower = {case.what: case for case in cases(bound, plan)}["latency of large +20%"]
    assert slower.kept_itl_p99_ms > 65.0
    assert slower.best.thresholds == (1, 1)


def test_noise_alone_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower thresholds that are chosen, though slower, as nothing can tell them apart."""

    def lowest(predictions: list[Prediction], *rest: object) -> tuple[Prediction, bool]:
        return next(each for each in predictions if each.thresholds == (1, 1)), True

    monkeypatch.setattr("tokenrouter.throughput_model.planning.sensitivity.choose", lowest)
    first = next(cases(parameters(), PLAN))
    assert (first.best, first.regret) == (first.kept, 0.0)


def test_what_the_file_says_of_spacing_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "MORE_STEPS", 20_000)
    runs = parameters(runs={"small": {3: 1.0}})
    assert [case.what for case in cases(runs, PLAN)] == [
        "latency of small -20%",
        "latency of small +20%",
        "latency of large -20%",
        "latency of large +20%",
    ]
    assert notes(runs) == [
        "--sensitivity without hand-overs in bursts and two kinds of requests: runs in the file "
        "say themselves how hand-overs are spaced"
    ]
    assert notes(parameters()) == []
    halves = (RequestClass(0.5, pair(0.3)), RequestClass(0.5, pair(0.4)))
    classes = [case.what for case in cases(parameters(classes=halves), PLAN)]
    assert classes[-2:] == ["small to large -20%", "small to large +20%"]
