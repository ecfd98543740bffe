import re
from collections.abc import Callable
from math import inf

import numpy
import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.chain.exact import predict
from tokenrouter.throughput_model.event_simulation.decisions import from_runs
from tokenrouter.throughput_model.event_simulation.events import simulate
from tokenrouter.throughput_model.parameters import Latency, Model, System
from tokenrouter.throughput_model.systems import (
    cascade,
    committed_by_check,
    query_level,
    r2r,
    speculative,
    speculative_runs,
)

A, B, C = (Model(name, Latency(ms)) for name, ms in zip("abc", (1.0, 3.0, 7.0), strict=True))


def test_r2r_writes_a_share_of_tokens_on_the_large_model() -> None:
    system = r2r((A, B), 0.2)
    assert system.visits_per_token == pytest.approx([1.0, 0.2])
    assert system.tokens_per_visit == pytest.approx([0.8, 1.0])


def test_every_token_of_a_cascade_climbs_until_a_model_keeps_it() -> None:
    system = cascade((A, B, C), (0.5, 0.1))
    assert system.visits_per_token == pytest.approx([1.0, 0.5, 0.05])
    assert system.tokens_per_visit == pytest.approx([0.5, 0.9, 1.0])
    lone = predict(system, 1, (1, 1, 1))
    assert lone.tokens_per_s == pytest.approx(1e3 / (1.0 + 0.5 * 3.0 + 0.05 * 7.0))


def test_a_cascade_of_two_is_r2r() -> None:
    ours, theirs = cascade((A, B), (0.3,)), r2r((A, B), 0.3)
    assert numpy.array_equal(ours.routing, theirs.routing)
    assert numpy.allclose(ours.routing * ours.committed, theirs.routing * theirs.committed)


def test_a_model_alone_is_a_cascade_without_levels() -> None:
    assert predict(cascade((B,), ()), 4, (1,)).tokens_per_s == pytest.approx(4e3 / 3.0)


def test_queries_stay_on_their_model_until_they_end() -> None:
    """Tokens are shared as queries are: all have the same mean length."""
    system = query_level((A, B), (0.75, 0.25), mean_tokens=50)
    assert system.visits_per_token == pytest.approx([0.75, 0.25])
    assert system.routing[1] == pytest.approx([0.02 * 0.75, 0.98 + 0.02 * 0.25])
    assert predict(system, 1, (1, 1)).tokens_per_s == pytest.approx(1e3 / (0.75 + 0.75))


def test_a_model_that_writes_a_whole_request_is_fed_one_token_a_step() -> None:
    """Not those that other models wrote for other requests, 1 / 0.25 on average."""
    heavy = Model("b", Latency(3.0, per_request=1.0, per_token=2.0), max_batch=9)
    system = query_level((A, heavy), (0.75, 0.25), mean_tokens=50)
    assert system.latencies(1, 2) == pytest.approx([6.0, 9.0])
    assert system.models[1].max_batch == 9


def test_a_check_commits_what_was_right_and_one_more() -> None:
    assert committed_by_check(0.5, 2) == pytest.approx([0, 0.5, 0.25, 0.25])
    assert committed_by_check(1.0, 3) == pytest.approx([0, 0, 0, 0, 1])
    assert committed_by_check(0.0, 3) == pytest.approx([0, 1, 0, 0, 0])
    mean = committed_by_check(0.7, 5) @ numpy.arange(7)
    assert mean == pytest.approx((1 - 0.7**6) / (1 - 0.7))


def test_speculative_decoding_checks_a_draft_with_one_step() -> None:
    system = speculative((A, B), acceptance=0.5, draft_length=4)
    accepted = (1 - 0.5**5) / 0.5
    assert system.visits_per_token == pytest.approx([4 / accepted, 1 / accepted])
    lone = predict(system, 1, (1, 1))
    assert lone.tokens_per_s == pytest.approx(1e3 * accepted / (4 * 1.0 + 3.0))
    assert speculative_runs(4) == [{4: 1}, {1: 1}]


@pytest.mark.parametrize(("draft_length", "too_few"), [(1, 0.0), (2, 0.3), (5, 0.2)])
def test_drafts_of_fixed_length_are_faster_than_the_chain_says(
    draft_length: int, too_few: float
) -> None:
    """By as much as the docstring warns: requests that draft equally long stay together."""
    models = Model("draft", Latency(6.0)), Model("target", Latency(27.9))
    system = speculative(models, 0.8, draft_length, 0.1)
    runs = speculative_runs(draft_length)
    tapes = from_runs(system, runs, requests=4, steps=3000, seed=0, mean_steps=inf)
    fixed = simulate(system, (1, 1), tapes, duration_ms=60_000).tokens_per_s
    said = predict(system, 4, (1, 1)).tokens_per_s
    assert said == pytest.approx((1 - too_few) * fixed, rel=0.02)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: r2r((A, B), 1.5), "p: must be from 0 to 1, got 1.5"),
        (lambda: r2r((A, B, C), 0.5), "models: r2r needs 2 here, got 3"),
        (lambda: cascade((A, B), (0.5, 0.5)), "models: cascade needs 3 here, got 2"),
        (lambda: cascade((A, B, C), (0.5, -1)), "escalates.1: must be from 0 to 1, got -1"),
        (lambda: query_level((A, B), (0.5, 0.4), 10), "shares: add up to 0.9; they must be 1"),
        (lambda: query_level((A, B), (1.5, -0.5), 10), "shares.0: must be from 0 to 1, got 1.5"),
        (lambda: query_level((A, B), (0.5, 0.5), 0.5), "mean_tokens: must be at least 1, got 0.5"),
        (
            lambda: query_level((A, Model("b", Latency(per_token=1.0, table={1: 3.0}))), (1, 0), 9),
            "models.b.latency_ms: steps feed one token for each request here; add per_token to the "
            "table, for each batch size, and leave it out",
        ),
        (lambda: speculative((A, B), 0.5, 0), "draft_length: must be at least 1, got 0"),
        (lambda: speculative((A, B), 2, 3), "acceptance: must be from 0 to 1, got 2"),
    ],
)
def test_wrong_arguments_are_named(make: Callable[[], System], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(problem)}$"):
        make()
