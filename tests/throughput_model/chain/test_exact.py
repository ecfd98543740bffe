"""The chain against values that were confirmed independently, and against closed forms."""

import json
from math import comb
from operator import mul
from pathlib import Path

import pytest

from tokenrouter.throughput_model import systems
from tokenrouter.throughput_model.chain.exact import TooManyStatesError, predict
from tokenrouter.throughput_model.parameters import Latency, Model, System

ACCEPTANCE = json.loads(Path(__file__).parents[1].joinpath("acceptance.json").read_text())
P = ACCEPTANCE["p"]


def r2r(
    p: float = P,
    small: Latency | None = None,
    large: Latency | None = None,
    tick_ms: float | None = 0.1,
) -> System:
    models = Model("small", small or Latency(6.0)), Model("large", large or Latency(27.9))
    return systems.r2r(models, p, tick_ms)


@pytest.mark.parametrize(
    "row", ACCEPTANCE["rows"], ids=lambda row: f"{row['N']}-{row['theta'][0]}-{row['theta'][1]}"
)
def test_it_reproduces_the_acceptance_values(row: dict) -> None:
    found = predict(r2r(), row["N"], row["theta"])
    assert found.tokens_per_s == pytest.approx(row["tokens_per_s"], rel=5e-4)
    assert found.thresholds == tuple(row["theta"]) and found.method == "exact" and not found.stderr


def test_four_requests_with_thresholds_one_and_three_have_fourteen_states() -> None:
    assert predict(r2r(), 4, (1, 3)).states == 14


def test_a_lone_request_takes_the_steps_of_both_models_in_turn() -> None:
    found = predict(r2r(), 1, (1, 1))
    cycle = 6.0 / P + 27.9
    assert found.tokens_per_s == pytest.approx(1e3 / P / cycle, rel=1e-9)
    assert found.tokens_per_s == pytest.approx(63.43, abs=0.005)
    assert found.utilisation == pytest.approx([6.0 / P / cycle, 27.9 / cycle])
    assert found.mean_queue == (0, 0) and found.mean_batch == pytest.approx([1, 1])


@pytest.mark.parametrize("p", [0.05, 0.35, 0.8])
@pytest.mark.parametrize("requests", [2, 5, 12])
def test_all_requests_on_the_large_model_at_once(requests: int, p: float) -> None:
    longest = sum(
        comb(requests, j) * (-1) ** (j + 1) / (1 - (1 - p) ** j) for j in range(1, requests + 1)
    )
    expected = 1e3 * requests / p / (6.0 * longest + 27.9)
    assert predict(r2r(p), requests, (1, requests)).tokens_per_s == pytest.approx(
        expected, rel=1e-8
    )


AFFINE = Latency(5.0, 0.5), Latency(20.0, 1.5)


def binomial(trials: int, p: float, hits: int) -> float:
    return comb(trials, hits) * p**hits * (1 - p) ** (trials - hits)


@pytest.mark.parametrize("requests", [2, 5, 12])
def test_lockstep_with_latencies_that_grow_with_the_batch(requests: int) -> None:
    small, large = AFFINE
    cycle = small.at(requests, 0) + sum(
        binomial(requests, P, k) * large.at(k, 0) for k in range(1, requests + 1)
    )
    found = predict(r2r(P, small, large), requests, (requests, 1))
    assert found.tokens_per_s == pytest.approx(1e3 * requests / cycle, rel=1e-6)
    assert found.utilisation[0] == pytest.approx(small.at(requests, 0) / cycle)


@pytest.mark.parametrize("requests", [2, 5, 12])
def test_all_on_the_large_model_with_latencies_that_grow_with_the_batch(requests: int) -> None:
    small, large = AFFINE
    cycle = large.at(requests, 0) + sum(
        binomial(requests, (1 - P) ** steps, k) * small.at(k, 0)
        for steps in range(400)
        for k in range(1, requests + 1)
    )
    found = predict(r2r(P, small, large), requests, (1, requests))
    assert found.tokens_per_s == pytest.approx(1e3 * requests / P / cycle, rel=1e-6)
    assert found.mean_batch[1] == pytest.approx(requests)


def ping_pong(max_batch: int | None = None) -> System:
    models = Model("small", Latency(6.0), max_batch), Model("large", Latency(27.9))
    return System(models, [[0, 1], [1, 0]], [[1, 1], [1, 1]], 0.1)


def test_deterministic_routing_keeps_together_what_starts_together() -> None:
    assert predict(ping_pong(), 2, (1, 1)).tokens_per_s == pytest.approx(4e3 / 33.9)


def test_deterministic_routing_keeps_apart_what_starts_apart() -> None:
    assert predict(ping_pong(max_batch=1), 2, (1, 1)).tokens_per_s == pytest.approx(2e3 / 27.9)


def test_time_is_shared_out_among_queues_and_batches() -> None:
    """Little's law: requests in a queue or a batch are all of them."""
    found = predict(r2r(), 6, (1, 2))
    computed = sum(map(mul, found.utilisation, found.mean_batch))
    assert computed + sum(found.mean_queue) == pytest.approx(6, rel=1e-9)


@pytest.mark.parametrize("most", [1, 100])
def test_too_many_states_are_refused(most: int) -> None:
    with pytest.raises(TooManyStatesError, match=f"more than {most} states; simulate them"):
        predict(r2r(), 4, (1, 1), max_states=most)
