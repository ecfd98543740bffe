"""Co-LLM's rule."""

from __future__ import annotations

import math

import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Decision, Request, Step
from tokenrouter.schedulers.co_llm import LARGE, SMALL, CoLLM
from tokenrouter.schedulers.signals import DeferralProbability

KEEP, ASK = Decision(1, SMALL), Decision(0, LARGE)


def decide(deferral: float, threshold: float | None = None) -> Decision:
    step = Step((9,), {"deferral_probability": deferral})
    return CoLLM(["s", "l"], threshold).route(Request([1], 1, SMALL), step)


def test_above_the_threshold_it_defers() -> None:
    assert decide(0.5) == KEEP
    assert decide(0.5001) == ASK
    assert decide(0.3, 0.3) == KEEP
    assert decide(0.31, 0.3) == ASK
    assert decide(math.nan) == ASK


def test_the_large_model_writes_one_token_and_hands_back() -> None:
    assert CoLLM(["s", "l"]).route(Request([1], 1, LARGE), Step((9,), {})) == KEEP


def test_arguments() -> None:
    assert list(CoLLM(["s", "l"]).signals(SMALL)) == [DeferralProbability()]
    assert list(CoLLM(["s", "l"]).signals(LARGE)) == []
    with pytest.raises(ConfigError, match="from 0 to 1"):
        CoLLM(["s", "l"], 2.0)
