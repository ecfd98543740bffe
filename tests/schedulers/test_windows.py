"""Windows that decide how long the large model stays."""

from __future__ import annotations

import math

import pytest

from tokenrouter.schedulers.windows import Rolling

HIGH, LOW = 3.0, 1.0
TAU = 2.0


def asked(rolling: Rolling, values: list[float]) -> list[bool]:
    return [rolling.asks(value, TAU) for value in values]


@pytest.mark.parametrize("with_trigger", [True, False])
def test_it_begins_as_after_a_large_token_with_an_empty_window(with_trigger: bool):
    assert asked(Rolling(3, with_trigger), [HIGH, LOW, LOW]) == [True, True, False]
    assert asked(Rolling(3, with_trigger), [LOW]) == [False]


def test_the_mean_is_over_the_last_few_values():
    # Means: 9, 5, 11/3, 1.
    assert asked(Rolling(3, True), [9.0, LOW, LOW, LOW]) == [True, True, True, False]
    assert asked(Rolling(1, True), [9.0, LOW]) == [True, False]


def test_a_mean_of_tau_stays():
    assert asked(Rolling(2, True), [HIGH, LOW, LOW]) == [True, True, False]


def test_the_value_that_asks_counts_or_not():
    values = [LOW, HIGH, LOW, LOW]
    assert asked(Rolling(3, True), values) == [False, True, True, False]
    assert asked(Rolling(3, False), values) == [False, True, False, False]


def test_a_switch_forgets_what_was_before():
    # Without clearing, 1 and 9 would keep the second run going: (9 + 1 + 3 + 1) / 4.
    values = [9.0, LOW, LOW, LOW, HIGH, LOW, LOW]
    assert asked(Rolling(99, True), values[:4]) == [True] * 4
    rolling = Rolling(2, True)
    assert asked(rolling, values) == [True, True, False, False, True, True, False]


def test_values_between_runs_are_not_in_the_window():
    rolling = Rolling(3, False)
    assert asked(rolling, [LOW, LOW, LOW, HIGH, HIGH]) == [False, False, False, True, True]


def test_certainty_keeps_the_large_model_out_but_does_not_send_it_away():
    rolling = Rolling(3, True)
    assert rolling.asks(HIGH, TAU, certain=True)
    assert not rolling.asks(-9.0, TAU)
    assert not rolling.asks(HIGH, TAU, certain=True)
    assert rolling.asks(HIGH, TAU, certain=False)


def test_what_is_no_number_asks_until_it_leaves_the_window():
    assert asked(Rolling(2, True), [LOW, math.nan, LOW, LOW]) == [False, True, True, False]
    assert asked(Rolling(3, False), [math.inf, -math.inf, LOW]) == [True, True, True]
