"""The event simulation keeps the rules of delayed batching, tick by tick."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy
import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model import systems
from tokenrouter.throughput_model.chain import exact
from tokenrouter.throughput_model.event_simulation import decisions, events
from tokenrouter.throughput_model.parameters import Latency, Model, System

P = 0.35


def system(
    *latencies: float | Latency, routing: object = None, limits: Sequence[int | None] = ()
) -> System:
    """Models of these latencies; by default each hop commits one token, and P is R2R's."""
    count = len(latencies)
    models = tuple(
        Model(
            f"m{index}",
            latency if isinstance(latency, Latency) else Latency(latency),
            limits[index] if limits else None,
        )
        for index, latency in enumerate(latencies)
    )
    if routing is None:
        routing = numpy.roll(numpy.eye(count), 1, axis=1)
    return System(models, numpy.array(routing), numpy.ones((count, count)), tick_ms=0.1)


def r2r(*latencies: float | Latency, p: float = P) -> System:
    base = system(*latencies, routing=[[1 - p, p], [1.0, 0.0]])
    return systems.r2r(base.models, p, tick_ms=0.1)


def tapes(*requests: tuple[Sequence[int], Sequence[float]]) -> decisions.Tapes:
    """(where it goes after each step, tokens of each step) of requests that start in model 0."""
    longest = max(len(following) for following, _ in requests)
    following = numpy.zeros((len(requests), longest), numpy.int8)
    committed = numpy.zeros((len(requests), longest), numpy.float32)
    for index, (to, tokens) in enumerate(requests):
        following[index, : len(to)] = to
        committed[index, : len(tokens)] = tokens
    lengths = numpy.array([len(to) for to, _ in requests])
    return decisions.Tapes(numpy.zeros(len(requests), numpy.int8), following, committed, lengths)


def test_all_requests_start_together_in_the_first_queue() -> None:
    both = tapes(([1, 0], [1, 1]), ([1, 0], [1, 1]))
    trace = events.simulate(system(6.0, 27.9), (1, 1), both, 33_900.0)
    assert trace.tokens_per_s == pytest.approx(4 / 33.9e-3)
    assert trace.mean_batch == (2.0, 2.0)
    assert trace.utilisation == pytest.approx((6.0 / 33.9, 27.9 / 33.9))


def test_times_are_rounded_to_ticks_not_cut() -> None:
    trace = events.simulate(system(27.9), (1,), tapes(([0], [1])), 27_900.0)
    assert trace.tokens.tolist() == [1000.0]


def test_completions_at_one_time_are_batched_together() -> None:
    pair = tapes(([0], [1]), ([1, 0], [1, 1]))
    trace = events.simulate(system(2.0, 4.0), (1, 1), pair, 6000.0)
    assert trace.mean_batch == (pytest.approx(4 / 3), 1.0)
    assert trace.mean_wait_ms == (0.0, 0.0)


def test_the_oldest_go_first_even_if_others_starve() -> None:
    three = tapes(([0], [1]), ([0], [1]), ([0], [1]))
    trace = events.simulate(system(5.0, limits=[2]), (1,), three, 5000.0)
    assert trace.tokens.tolist() == [1000.0, 1000.0, 0.0]
    assert trace.mean_queue == (1.0,)
    assert trace.mean_batch == (2.0,)


def test_without_a_longest_wait_a_threshold_that_is_not_met_holds() -> None:
    pair = tapes(([0], [1]), ([1, 0], [1, 1]))
    trace = events.simulate(system(2.0, 5.0), (1, 2), pair, 1800.0, warm_up_ms=18.0)
    forever = events.simulate(system(2.0, 5.0), (1, 2), pair, 1800.0, 18.0, max_wait_ms=math.inf)
    assert trace.tokens.tolist() == forever.tokens.tolist() == [900.0, 0.0]
    assert trace.mean_queue == (0.0, 1.0)
    assert trace.expired_waits == (0, 0)


def test_a_wait_that_is_over_launches_what_is_there() -> None:
    """0-2 step, 2-12 wait, 12-17 step, 17-18 wait for the other's step: 18 ms a cycle."""
    pair = tapes(([0], [1]), ([1, 0], [0, 1]))
    trace = events.simulate(
        system(2.0, 5.0), (1, 2), pair, 1800.0, warm_up_ms=18.0, max_wait_ms=10.0
    )
    assert trace.tokens.tolist() == [900.0, 100.0]
    assert trace.expired_waits == (0, 100)
    assert trace.mean_wait_ms == (pytest.approx(0.1), 10.0)
    assert trace.mean_queue == (pytest.approx(1 / 18), pytest.approx(10 / 18))
    assert trace.gap_ms(1.0) == pytest.approx(18.0, rel=0.003)
    assert trace.itl_p50_ms == pytest.approx(2.0, rel=0.003)


def test_a_request_that_a_launch_left_waits_from_its_own_arrival() -> None:
    """All three come at 2, a batch takes two; the third is overdue 20 later, not after the batch.

    Then every 27 ms the pair waits 4 for its step, and the third 20 for company.
    """
    pair, third = ([1, 0, *[0] * 8], [1] * 10), ([1, 0], [1, 1])
    limited = system(2.0, 5.0, limits=[None, 2])
    trace = events.simulate(
        limited, (1, 2), tapes(pair, pair, third), 2700.0, warm_up_ms=54.0, max_wait_ms=20.0
    )
    assert trace.expired_waits == (0, 100)
    assert trace.mean_wait_ms == (0.0, pytest.approx(28 / 3))
    assert trace.tokens.tolist() == [1000.0, 1000.0, 200.0]


def test_a_threshold_that_is_met_is_no_expired_wait() -> None:
    """One place, and two that want it: a younger one waits for ever, and counts nowhere."""
    pair = tapes(([1, 0], [1, 1]), ([1, 0], [1, 1]), ([0], [0]))
    limited = system(2.0, 50.0, limits=[None, 1])
    trace = events.simulate(limited, (1, 1), pair, 10_000.0, max_wait_ms=1.0)
    assert trace.expired_waits == (0, 0)
    assert trace.utilisation[1] == 1.0


def test_hops_take_time_but_staying_takes_none() -> None:
    one = tapes(([0, 1, 0], [1, 1, 1]))
    trace = events.simulate(system(2.0, 3.0), (1, 1), one, 10_000.0, hop_ms=1.5)
    assert trace.tokens_per_s == pytest.approx(3 / 10e-3)


def test_requests_that_travel_arrive_in_order_and_join() -> None:
    """Steps end at 2 and 4, both are there at 7, done at 13 and back at 16."""
    pair = tapes(([1, 0], [1, 1]), ([0, 1, 0], [1, 1, 1]))
    trace = events.simulate(system(2.0, 6.0), (1, 2), pair, 16_000.0, hop_ms=3.0)
    assert trace.mean_batch[1] == 2.0
    assert trace.tokens_per_s == pytest.approx(5 / 16e-3)


def test_a_step_takes_longer_for_each_token_written_elsewhere() -> None:
    """Three steps of 2 ms; then the large model feeds its own last token and two more: 4 + 3."""
    one = tapes(([0, 0, 1, 0], [1, 1, 0, 1]))
    laws = (Latency(2.0), Latency(4.0, per_token=1.0))
    trace = events.simulate(system(*laws), (1, 1), one, 13_000.0)
    assert trace.tokens.tolist() == [3000.0]


def test_tokens_committed_together_have_one_gap() -> None:
    trace = events.simulate(system(5.0), (1,), tapes(([0], [4])), 5000.0)
    assert trace.itl_p50_ms == 0.0
    assert trace.gap_ms(0.76) == pytest.approx(5.0, rel=0.003)


def test_a_token_counts_once_it_is_whole() -> None:
    trace = events.simulate(system(5.0), (1,), tapes(([0], [0.1])), 50_000.0)
    assert trace.tokens_per_s == pytest.approx(20.0)
    assert trace.gap_ms(0.01) == trace.gap_ms(1.0) == pytest.approx(50.0, rel=0.003)


def test_without_tokens_there_is_no_gap() -> None:
    assert math.isnan(events.simulate(system(5.0), (1,), tapes(([0], [0])), 500.0).itl_p99_ms)


def test_tapes_are_repeated_from_their_first_model() -> None:
    one = tapes(([1, 1, 0], [1, 1, 1]))
    trace = events.simulate(system(2.0, 3.0), (1, 1), one, 8000.0, warm_up_ms=0.0)
    assert trace.tokens.tolist() == [2999.0]
    assert trace.laps == 999


LAW = (Latency(5.0, per_request=1.0), Latency(20.0, per_request=4.0))


def binomial(count: int, chance: float, k: int) -> float:
    return math.comb(count, k) * chance**k * (1 - chance) ** (count - k)


def lockstep(n: int) -> float:
    """Tokens/s of thresholds (N, 1): a step of all, then one of the k that are critical."""
    second = sum(binomial(n, P, k) * LAW[1].at(k, k) for k in range(1, n + 1))
    return 1e3 * n / (LAW[0].at(n, n) + second)


def gathered(n: int) -> float:
    """Tokens/s of thresholds (1, N): the large model waits for all."""
    steps = sum(
        binomial(n, (1 - P) ** t, k) * LAW[0].at(k, k) for t in range(400) for k in range(1, n + 1)
    )
    return 1e3 * (n / P) / (steps + LAW[1].at(n, n))


@pytest.mark.parametrize("n", [1, 3, 6])
def test_closed_forms(n: int) -> None:
    for vector, known in (((n, 1), lockstep(n)), ((1, n), gathered(n))):
        law = r2r(*LAW)
        (trace,) = events.compare(law, [vector], n, steps=300_000)
        mean, stderr = trace.expected(law)
        assert mean == pytest.approx(known, abs=4 * stderr)
        assert trace.tokens_per_s == pytest.approx(known, abs=4 * trace.stderr)
        assert stderr < trace.stderr < 0.005 * known
        assert trace.laps == 0


@pytest.mark.parametrize(
    ("n", "vector", "known", "p99"),
    [
        (2, (1, 1), 98.96, 56), (2, (1, 2), 110.32, 76), (4, (1, 1), 187.19, 60),
        (4, (1, 3), 207.95, 74), (4, (2, 2), 187.59, 68), (4, (4, 1), 138.31, 62),
    ],
)  # fmt: skip
def test_published_values(n: int, vector: tuple[int, ...], known: float, p99: float) -> None:
    """The paper's pair; throughput from an exact chain, gaps from another simulation."""
    law = r2r(6.0, 27.9)
    (trace,) = events.compare(law, [vector], n, steps=500_000, seed=7)
    mean, stderr = trace.expected(law)
    assert mean == pytest.approx(known, abs=4 * stderr + 2e-4 * known)
    assert stderr < 1.5e-3 * known
    assert trace.itl_p99_ms == pytest.approx(p99, rel=0.02)


def test_standard_errors_are_what_runs_scatter() -> None:
    law = r2r(6.0, 27.9)
    traces = [events.compare(law, [(1, 2)], 3, steps=20_000, seed=seed)[0] for seed in range(40)]
    for means in (
        [(trace.tokens_per_s, trace.stderr) for trace in traces],
        [trace.expected(law) for trace in traces],
    ):
        values, stderrs = numpy.array(means).T
        assert values.std(ddof=1) == pytest.approx(stderrs.mean(), rel=0.35)


def test_slow_requests_are_served_less_where_the_threshold_favours_others() -> None:
    """Reference: half at p = .02, half at .18, N = 4: 0.11 of the others' rate at (1, 4)."""
    mixed = decisions.classes([(r2r(6.0, 27.9, p=0.02), 2), (r2r(6.0, 27.9, p=0.18), 2)], 90_000, 1)
    kinds = numpy.array([0, 1, 0, 1])  # of the requests, by age
    rates = []
    for vector in ((1, 4), (1, 1)):
        tokens = events.simulate(r2r(6.0, 27.9), vector, mixed, 600_000.0).tokens
        rates.append(tokens[kinds == 1].sum() / tokens[kinds == 0].sum())
    assert rates[0] == pytest.approx(0.11, abs=0.02)
    assert rates[1] == pytest.approx(0.53, abs=0.04)


@pytest.mark.parametrize(("vector", "loss", "margin"), [((1, 2), 0.0, 0.01), ((1, 4), 0.15, 0.02)])
def test_bursts_cost_little_unless_all_must_meet(
    vector: tuple[int, ...], loss: float, margin: float
) -> None:
    """Reference: p alternates between .02 and .18; against one p, as often on the whole."""
    calm, busy = r2r(6.0, 27.9, p=0.02), r2r(6.0, 27.9, p=0.18)
    bursts = decisions.bursty(calm, busy, 4, 60_000, seed=1, mean_stretch=50.0)
    trace = events.simulate(calm, vector, bursts, 300_000.0)
    hops = trace.hops.sum(axis=0)
    even = r2r(6.0, 27.9, p=float(hops[0, 1] / hops[0].sum()))
    pooled = exact.predict(even, 4, vector).tokens_per_s
    assert 1 - trace.tokens_per_s / pooled == pytest.approx(loss, abs=margin)
    assert trace.stderr < 0.01 * pooled


def test_vectors_are_compared_on_the_same_decisions() -> None:
    law = r2r(6.0, 27.9)
    one, same, other = events.compare(law, [(1, 1), (1, 1), (1, 2)], 2, steps=100_000)
    assert (one.windows == same.windows).all()
    gains = other.windows - one.windows
    stderr = gains.std(ddof=1) / len(gains) ** 0.5
    assert gains.mean() == pytest.approx(110.32 - 98.96, abs=4 * stderr)


@pytest.mark.parametrize(
    ("vector", "options", "message"),
    [
        ((2, 1), {}, "never wait"),
        ((1,), {}, "must be 2 numbers"),
        ((1, 1), {"duration_ms": 1.0}, "cannot be simulated"),
        ((1, 1), {"hop_ms": -1.0}, "cannot be simulated"),
        ((1, 1), {"max_wait_ms": 0.0}, "cannot be simulated"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    vector: tuple[int, ...], options: dict[str, float], message: str
) -> None:
    duration = options.pop("duration_ms", 1000.0)
    with pytest.raises(ConfigError, match=message):
        events.simulate(r2r(1.0, 2.0), vector, tapes(([0], [1])), duration, **options)


def test_tapes_of_other_models_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 models, but the system has 1"):
        events.simulate(system(1.0), (1,), tapes(([1, 0], [1, 1])), 1000.0)
