"""A coin per token."""

from __future__ import annotations

import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Decision, Request, Step
from tokenrouter.schedulers.random import LARGE, SMALL, Random

STEP = Step((9,), {})


def sent(scheduler: Random, seed: int, count: int) -> list[bool]:
    """Whether the large model was asked at each of ``count`` positions."""
    decisions = []
    for position in range(count):
        seen = Request([1, 2, *[9] * position], 2, SMALL, seed)
        decision = scheduler.route(seen, STEP)
        assert decision in (Decision(0, LARGE), Decision(1, SMALL))
        decisions.append(decision.to == LARGE)
    return decisions


def test_the_small_model_comes_first():
    assert (SMALL, LARGE) == (0, 1)


@pytest.mark.parametrize("p", [0.05, 0.35, 0.8])
def test_the_rate_is_the_threshold(p: float):
    assert sum(sent(Random(["s", "l"], p), 3, 4000)) / 4000 == pytest.approx(p, abs=0.025)


def test_the_default_is_a_fair_coin():
    assert sum(sent(Random(["s", "l"]), 3, 2000)) / 2000 == pytest.approx(0.5, abs=0.035)


def test_certainty_is_exact():
    assert not any(sent(Random(["s", "l"], 0.0), 3, 500))
    assert all(sent(Random(["s", "l"], 1.0), 3, 500))


def test_the_coins_are_those_of_the_request_and_nested_in_the_threshold():
    low, high = (sent(Random(["s", "l"], p), 3, 500) for p in (0.2, 0.6))
    assert sent(Random(["s", "l"], 0.2), 3, 500) == low
    assert sent(Random(["s", "l"], 0.2), 4, 500) != low
    assert all(b for a, b in zip(low, high, strict=True) if a), "U < 0.2 implies U < 0.6"
    draws = [Request([1, 2, *[9] * n], 2, LARGE, 3).draw() for n in range(500)]
    assert [u < 0.2 for u in draws] == low


def test_the_large_model_writes_one_token_and_hands_back():
    for threshold in (0.0, 1.0):
        seen = Request([1, 2], 2, LARGE)
        assert Random(["s", "l"], threshold).route(seen, STEP) == Decision(1, SMALL)


def test_it_is_for_two_models_and_a_probability():
    with pytest.raises(ConfigError, match="between 2 models"):
        Random(["a", "b", "c"])
    with pytest.raises(ConfigError, match="from 0 to 1"):
        Random(["a", "b"], 1.5)
