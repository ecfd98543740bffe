"""R2R's immediate rule: every metric at once."""

from __future__ import annotations

import math
import random

import pytest

from tests.schedulers.scripted import LARGE, SMALL, rows, writers
from tests.schedulers.served import Served
from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.immediate import Immediate
from tokenrouter.schedulers.signals import Aleatoric, Entropy, Epistemic

PAIR = ["small", "large"]


def test_by_default_it_is_the_aleatoric_uncertainty():
    scheduler = Immediate(PAIR)
    assert list(scheduler.signals(SMALL)) == [Aleatoric()]
    assert list(scheduler.signals(LARGE)) == []
    assert writers(scheduler, rows(aleatoric=[2.2749, 2.275, 9.0, math.nan])) == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("metric", "signal"), [("au", Aleatoric()), ("eu", Epistemic()), ("h", Entropy())]
)
def test_another_metric_with_a_threshold_of_its_own(metric: str, signal: Aleatoric):
    scheduler = Immediate(PAIR, 0.5, metric=metric)
    assert list(scheduler.signals(SMALL)) == [signal]
    assert writers(scheduler, rows(**{signal.name: [0.4, 0.5, 0.6]})) == [0, 1, 1]


def test_all_of_several_metrics_must_reach_theirs():
    scheduler = Immediate(PAIR, thresholds={"au": 2, "eu": 0.1, "h": 0.45})
    assert set(scheduler.signals(SMALL)) == {Aleatoric(), Epistemic(), Entropy()}
    high, low = {"aleatoric": 2.0, "epistemic": 0.1, "entropy": 0.45}, -1.0
    script = [high, *({**high, name: low} for name in high), dict.fromkeys(high, math.nan)]
    assert writers(scheduler, script) == [1, 0, 0, 0, 1]


def test_it_equals_the_rule_written_down():
    rng = random.Random(1)
    script = [
        {name: rng.random() for name in ("aleatoric", "epistemic", "entropy")} for _ in range(500)
    ]
    limits = {"aleatoric": 0.3, "epistemic": 0.4, "entropy": 0.2}
    scheduler = Immediate(PAIR, thresholds={"au": 0.3, "eu": 0.4, "h": 0.2})
    wanted = [int(all(values[name] >= limits[name] for name in limits)) for values in script]
    assert writers(scheduler, script) == wanted
    assert 0 < sum(wanted) < len(wanted)


@pytest.mark.parametrize(
    ("threshold", "args", "problem"),
    [
        (None, {"metric": "eu"}, "router_threshold: immediate has no default for the metric 'eu'"),
        (1.0, {"metric": "eh"}, "algorithm_args.metric: must be one of au, eu, h, got 'eh'"),
        (1.0, {"thresholds": {"au": 1.0}}, "router_threshold: .*leave one of the two out"),
        (None, {"thresholds": {}}, "algorithm_args.thresholds: must give one or more"),
        (None, {"thresholds": 2.0}, "algorithm_args.thresholds: must give one or more"),
        (None, {"thresholds": {"x": 1.0}}, "algorithm_args.thresholds: must be one of au, eu, h"),
        (None, {"thresholds": {"au": "1"}}, "thresholds.au: must be a number, got '1'"),
    ],
)
def test_what_is_wrong_is_named(threshold: float | None, args: dict[str, object], problem: str):
    with pytest.raises(ConfigError, match=problem):
        Immediate(PAIR, threshold, **args)


SERVED = Served("immediate", [
    (1.6, {}), (1.6, {"verify": {"epsilon": 0.3}}),
    (0.6, {"metric": "eu"}),
    (None, {"thresholds": {"au": 1.0, "eu": 0.3, "h": 0.2}}),
])  # fmt: skip
