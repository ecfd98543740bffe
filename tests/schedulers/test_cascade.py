"""M models: up until one is sure."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Decision, Request, Step
from tokenrouter.schedulers.cascade import Cascade
from tokenrouter.schedulers.signals import TopProbability


def decide(scheduler: Cascade, level: int, top: float | None) -> Decision:
    signals = {} if top is None else {"top_probability": top}
    return scheduler.route(Request([1], 1, level), Step((9,), signals))


def test_each_level_has_its_own_threshold():
    scheduler = Cascade(["a", "b", "c"], thresholds=[0.5, 0.8])
    assert decide(scheduler, 0, 0.49) == Decision(0, 1)
    assert decide(scheduler, 0, 0.5) == Decision(1, 0)
    assert decide(scheduler, 1, 0.79) == Decision(0, 2)
    assert decide(scheduler, 1, 0.8) == Decision(1, 0)


def test_the_last_model_always_writes_and_needs_no_signal():
    scheduler = Cascade(["a", "b", "c"], thresholds=[0.5, 0.8])
    assert decide(scheduler, 2, None) == Decision(1, 0)
    assert [list(scheduler.signals(level)) for level in range(3)] == [
        [TopProbability()],
        [TopProbability()],
        [],
    ]


@pytest.mark.parametrize("members", [1, 2, 4])
def test_one_threshold_for_every_level(members: int):
    names = [f"m{i}" for i in range(members)]
    assert Cascade(names, 0.3).thresholds == (0.3,) * (members - 1)
    assert Cascade(names).thresholds == (0.9,) * (members - 1)
    assert Cascade(names, 0.0).thresholds == (0.0,) * (members - 1)


def test_thresholds_by_level_are_instead_of_one_for_all():
    with pytest.raises(ConfigError, match="leave one of the two out"):
        Cascade(["a", "b"], 0.3, thresholds=[0.7])
    assert Cascade(["a", "b", "c"], thresholds=[0.0, 1.0]).thresholds == (0.0, 1.0)


def test_one_model_is_a_cascade_of_one():
    assert decide(Cascade(["a"]), 0, None) == Decision(1, 0)


def test_what_is_not_a_number_is_not_sure():
    assert decide(Cascade(["a", "b"], 0.0), 0, math.nan) == Decision(0, 1)


@pytest.mark.parametrize(
    "thresholds", [[], [0.5], [0.1, 0.2, 0.3], [0.5, 1.1], [-0.1, 0.5], 0.5, "ab", [0.5, "x"]]
)
def test_thresholds_that_do_not_fit_are_refused(thresholds: Any):
    with pytest.raises(ConfigError, match=r"thresholds: cascade over 3 models needs a list of 2,"):
        Cascade(["a", "b", "c"], thresholds=thresholds)


def test_a_threshold_that_is_no_probability_is_refused():
    with pytest.raises(ConfigError, match="from 0 to 1"):
        Cascade(["a", "b"], 1.5)
