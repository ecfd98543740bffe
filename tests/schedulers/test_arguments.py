from __future__ import annotations

import math

import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.arguments import choice, flag, number, text, whole_number


def test_what_is_right_is_given_back():
    assert whole_number("n", 3, 3) == 3
    assert number("n", 3, 3.0) == 3.0
    assert number("n", -math.inf) == -math.inf
    assert choice("n", "a", ("a", "b")) == "a"
    assert text("n", " ") == " "
    assert flag("n", False) is False


@pytest.mark.parametrize("value", [2, 3.0, "3", None, True])
def test_not_a_whole_number_or_too_small(value: object):
    with pytest.raises(ConfigError, match=r"algorithm_args.n: must be a whole .* at least 3, got"):
        whole_number("n", value, 3)


@pytest.mark.parametrize("value", [2.9, "3", None, True, math.nan])
def test_not_a_number_or_too_small(value: object):
    with pytest.raises(ConfigError, match=r"algorithm_args.n: must be a number of at least 3, got"):
        number("n", value, 3)


@pytest.mark.parametrize("value", [10**400, -(10**400)])
def test_an_int_that_no_float_can_hold(value: int):
    with pytest.raises(ConfigError, match=r"^algorithm_args.n: its size is beyond 1.79769e\+308"):
        number("n", value)


@pytest.mark.parametrize("value", ["c", None, 1, ["a"]])
def test_no_choice(value: object):
    with pytest.raises(ConfigError, match=r"algorithm_args.n: must be one of a, b, got"):
        choice("n", value, ("a", "b"))


@pytest.mark.parametrize("value", ["", None, 1])
def test_no_text(value: object):
    with pytest.raises(ConfigError, match=r"algorithm_args.n: must be a text"):
        text("n", value)


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_no_flag(value: object):
    with pytest.raises(ConfigError, match=r"algorithm_args.n: must be true or false"):
        flag("n", value)
