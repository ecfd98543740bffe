"""R2R's entropy rule."""

from __future__ import annotations

import math

import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Decision, Request, Step
from tokenrouter.schedulers.entropy import LARGE, SMALL, EntropyRouting
from tokenrouter.schedulers.signals import Entropy

AT_SMALL, AT_LARGE = Request([1], 1, SMALL), Request([1], 1, LARGE)
KEEP, ASK = Decision(1, SMALL), Decision(0, LARGE)


def decide(entropy: float, threshold: float | None = None) -> Decision:
    scheduler = EntropyRouting(["s", "l"], threshold)
    return scheduler.route(AT_SMALL, Step((9,), {"entropy": entropy}))


def test_the_small_model_comes_first():
    assert (SMALL, LARGE) == (0, 1)


def test_high_entropy_goes_to_the_large_model_and_equality_is_high():
    assert decide(0.4499) == KEEP
    assert decide(0.45) == ASK
    assert decide(0.69, 0.7) == KEEP
    assert decide(0.7, 0.7) == ASK


def test_a_threshold_of_zero_always_asks():
    assert decide(0.0, 0.0) == ASK


def test_what_is_not_a_number_goes_to_the_large_model():
    assert decide(math.nan) == ASK
    assert decide(math.inf) == ASK
    assert decide(math.nan, math.inf) == ASK
    assert decide(1e9, math.inf) == KEEP


def test_the_large_model_writes_one_token_and_hands_back():
    assert EntropyRouting(["s", "l"]).route(AT_LARGE, Step((9,), {})) == KEEP


def test_only_the_small_model_computes_the_signal():
    scheduler = EntropyRouting(["s", "l"])
    assert list(scheduler.signals(SMALL)) == [Entropy()]
    assert list(scheduler.signals(LARGE)) == []


def test_it_is_for_two_models_and_entropies():
    with pytest.raises(ConfigError, match="between 2 models"):
        EntropyRouting(["a"])
    with pytest.raises(ConfigError, match="from 0 to inf"):
        EntropyRouting(["a", "b"], -0.1)
