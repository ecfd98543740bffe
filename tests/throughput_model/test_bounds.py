import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.bounds import bound, bounds
from tokenrouter.throughput_model.chain.exact import TooManyStatesError, predict
from tokenrouter.throughput_model.parameters import Latency, Model, System
from tokenrouter.throughput_model.systems import r2r

SMALL, LARGE = Model("small", Latency(6.0)), Model("large", Latency(27.9))


def test_few_requests_are_bounded_by_their_own_steps() -> None:
    """A token takes 1 small step and 0.35 large ones; two requests halve that."""
    found = bounds(r2r((SMALL, LARGE), 0.35), 2)
    assert found.no_waiting == pytest.approx(2e3 / (6.0 + 0.35 * 27.9))
    assert found.bottleneck is None and found.tokens_per_s == found.no_waiting


def test_many_requests_are_bounded_by_the_best_batch_of_a_model() -> None:
    large = Model("large", Latency(20.0, 2.0), max_batch=4)
    found = bounds(r2r((SMALL, large), 0.35), 100)
    assert found.saturated == pytest.approx((100e3 / 6.0, 4e3 / (0.35 * 28.0)))
    assert found.bottleneck == 1 and found.tokens_per_s == found.saturated[1]


def test_there_must_be_a_request() -> None:
    with pytest.raises(ConfigError, match=r"^concurrency: must be at least 1, got 0$"):
        bound(r2r((SMALL, LARGE), 0.35), 0)


@st.composite
def cases(draw: st.DrawFn) -> tuple[System, int, list[int]]:
    """Systems of 2 or 3 models with whole latencies, and legal thresholds."""
    size, requests = draw(st.integers(2, 3)), draw(st.integers(1, 5))
    share = st.integers(1, 20)
    routing = numpy.array([[draw(share) for _ in range(size)] for _ in range(size)], float)
    committed = numpy.array([[draw(st.integers(0, 2)) for _ in range(size)] for _ in range(size)])
    committed[0, 0] = 1
    ticks = st.integers(1, 9)
    models = tuple(
        Model(
            str(index),
            Latency(table={batch: float(draw(ticks)) for batch in range(1, requests + 1)}),
            draw(st.none() | st.integers(1, requests)),
        )
        for index in range(size)
    )
    system = System(models, routing / routing.sum(axis=1, keepdims=True), committed, 1.0)
    thresholds, spare = [], requests - 1
    for index in range(size):
        thresholds.append(1 + draw(st.integers(0, min(spare, system.limit(index, requests) - 1))))
        spare -= thresholds[-1] - 1
    return system, requests, thresholds


@settings(max_examples=60, deadline=None, derandomize=True)
@given(cases())
def test_no_system_exceeds_them(case: tuple[System, int, list[int]]) -> None:
    system, requests, thresholds = case
    try:
        found = predict(system, requests, thresholds)
    except TooManyStatesError:
        return
    limits = bounds(system, requests)
    assert found.tokens_per_s <= limits.tokens_per_s * (1 + 1e-9)
    for busy, most in zip(found.utilisation, limits.saturated, strict=True):
        assert found.tokens_per_s <= most * busy * (1 + 1e-9)  # the same while it computes
