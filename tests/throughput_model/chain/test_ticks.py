import re

import numpy
import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.chain.exact import predict
from tokenrouter.throughput_model.chain.ticks import ROUNDING, in_ticks
from tokenrouter.throughput_model.parameters import Latency, Model, System
from tokenrouter.throughput_model.systems import r2r


def pair(small: Latency, large: Latency, tick_ms: float | None = None) -> System:
    return r2r((Model("small", small), Model("large", large)), 0.35, tick_ms)


def test_ticks_are_rounded_never_truncated() -> None:
    """27.9 / 0.1 is 278.99999999999994."""
    tick, ticks = in_ticks(pair(Latency(6.0), Latency(27.9), 0.1), 2)
    assert tick == 0.1 and ticks.tolist() == [[0, 60, 60], [0, 279, 279]]


def test_the_usual_tick_is_taken_where_it_divides_all_latencies() -> None:
    tick, ticks = in_ticks(pair(Latency(6.0, 0.1), Latency(27.9)), 2)
    assert tick == 0.1 and ticks[0].tolist() == [0, 61, 62]


def test_sizes_above_a_limit_take_no_ticks() -> None:
    system = r2r((Model("a", Latency(1.0), 2), Model("b", Latency(2.0))), 0.5, 1.0)
    assert in_ticks(system, 3)[1].tolist() == [[0, 1, 1, 0], [0, 2, 2, 2]]


@pytest.mark.parametrize("tick", [0.7, 4.0, 100.0])
def test_a_tick_that_does_not_divide_a_latency_is_refused(tick: float) -> None:
    problem = (
        f"tick_ms: {tick:g} ms does not divide 6 ms, the latency of small at batch size 1; "
        "give a tick that does, or none"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(problem)}$"):
        predict(pair(Latency(6.0), Latency(27.9), tick), 2, (1, 1))


def test_the_batch_size_that_a_tick_does_not_divide_is_named() -> None:
    with pytest.raises(ConfigError, match=r"28\.3 ms, the latency of large at batch size 2; "):
        in_ticks(pair(Latency(6.0), Latency(table={1: 28.0, 2: 28.3}), 0.5), 2)


@pytest.mark.parametrize(("small", "tick"), [(6.0, 1.0), (0.0123, None)])
def test_latencies_of_too_many_ticks_are_refused(small: float, tick: float | None) -> None:
    with pytest.raises(
        ConfigError, match=r"^tick_ms: .* is too short for the 6e\+09 ms of large; "
    ):
        in_ticks(pair(Latency(small), Latency(6e9), tick), 2)


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (Latency(6.0132), Latency(27.913)),
        (Latency(5.137, 0.1113), Latency(10.27, 0.2226)),
        (Latency(1 / 3), Latency(40.123)),
        (Latency(7.0001), Latency(2.0003, 0.017)),
    ],
)
def test_a_chosen_tick_hardly_changes_a_latency(small: Latency, large: Latency) -> None:
    system = pair(small, large)
    tick, ticks = in_ticks(system, 8)
    for model in range(2):
        exact = system.latencies(model, 8)
        assert ticks[model, 1:] * tick == pytest.approx(exact, rel=ROUNDING)


def test_a_chosen_tick_lets_no_two_models_meet_that_do_not() -> None:
    """As 20 and 80 ticks, throughput would be 2.7 % off."""
    system = pair(Latency(7.859), Latency(31.476))
    assert numpy.gcd.reduce(in_ticks(system, 2)[1][:, 1]) == 1
    chosen = predict(system, 2, (1, 1)).tokens_per_s
    fine = predict(pair(Latency(7.859), Latency(31.476), 0.001), 2, (1, 1)).tokens_per_s
    assert chosen == pytest.approx(fine, rel=2e-3)


def test_equal_latencies_are_equal_in_ticks() -> None:
    ticks = in_ticks(pair(Latency(6.0132), Latency(6.0132)), 1)[1]
    assert ticks[0, 1] == ticks[1, 1] == 20


def test_what_is_too_unlike_is_named() -> None:
    message = r"for the 1e\+06 ms of large; it follows from the 0.001 ms of small: leave out"
    with pytest.raises(ConfigError, match=message):
        in_ticks(pair(Latency(1e-3), Latency(1e6)), 1)
    with pytest.raises(ConfigError, match=r"for the 1e\+06 ms of large; give a longer one"):
        in_ticks(pair(Latency(1.0), Latency(1e6), 1e-6), 1)
