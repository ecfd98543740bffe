"""R-Stitch: who has control keeps it."""

from __future__ import annotations

import math

import pytest

from tests.schedulers.served import Served, beginning, on_a_long_run
from tests.subserver.reference import TimedModel
from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Decision, Request, Step
from tokenrouter.schedulers.r_stitch import LARGE, SMALL, RStitch
from tokenrouter.schedulers.signals import Entropy, NormalisedEntropy, TopProbability

PAIR = ["small", "large"]
SIGNALS = {
    "maxp": TopProbability(),
    "entropy": Entropy(),
    "normalised_entropy": NormalisedEntropy(),
}


def decide(scheduler: RStitch, member: int, value: float) -> Decision:
    [signal] = scheduler.signals(member)
    return scheduler.route(Request([1], 1, member), Step((9,), {signal.name: value}))


@pytest.mark.parametrize("metric", SIGNALS)
def test_both_members_compute_the_metric(metric: str):
    scheduler = RStitch(PAIR, 0.5, metric)
    assert [list(scheduler.signals(member)) for member in (SMALL, LARGE)] == [[SIGNALS[metric]]] * 2


@pytest.mark.parametrize("metric", SIGNALS)
def test_the_unsure_small_model_is_dropped_and_the_sure_large_one_hands_back(metric: str):
    scheduler = RStitch(PAIR, 0.5, metric)
    sure, unsure = (0.5, 0.4999) if metric == "maxp" else (0.4999, 0.5)
    for doubt in (unsure, math.nan):
        assert decide(scheduler, SMALL, doubt) == Decision(0, LARGE)
        assert decide(scheduler, LARGE, doubt) == Decision(1, LARGE), "it keeps control"
    assert decide(scheduler, SMALL, sure) == Decision(1, SMALL)
    assert decide(scheduler, LARGE, sure) == Decision(1, SMALL), "its token is kept"


@pytest.mark.parametrize(
    ("threshold", "args", "problem"),
    [
        (0.5, {}, "algorithm_args.metric: must be one of maxp, entropy, normalised_entropy"),
        (0.5, {"metric": "top"}, "algorithm_args.metric: .* got 'top'"),
        (None, {"metric": "maxp"}, "router_threshold: r_stitch has no default for maxp; give one"),
        (1.5, {"metric": "maxp"}, "takes maxp from 0 to 1, got 1.5"),
        (1.5, {"metric": "normalised_entropy"}, "takes normalised_entropy from 0 to 1"),
        (-0.1, {"metric": "entropy"}, "from 0 to inf"),
    ],
)
def test_what_is_wrong_is_named(threshold: float | None, args: dict[str, str], problem: str):
    with pytest.raises(ConfigError, match=problem):
        RStitch(PAIR, threshold, **args)


def test_entropy_may_be_more_than_one():
    assert RStitch(PAIR, 1.5, "entropy").tau == 1.5


SERVED = Served("r_stitch", [
    (0.5, {"metric": "maxp"}), (0.5, {"metric": "entropy"}),
    (0.4, {"metric": "normalised_entropy"}),
], moments=(on_a_long_run,))  # fmt: skip


@pytest.mark.parametrize("setting", range(3))
def test_the_plain_loop_equals_the_method_written_down(setting: int):
    threshold, args = SERVED.settings[setting]
    signal = SIGNALS[args["metric"]]
    for first in range(100, 110):
        out, marks, writer = [first, 7], [], SMALL
        while len(marks) < 100:
            token, signals = TimedModel(writer).step(out, [signal])
            value = signals[signal.name]
            sure = value >= threshold if args["metric"] == "maxp" else value < threshold
            if writer == SMALL and not sure:
                writer = LARGE
                continue
            out.append(token)
            marks.append(2 * token + writer)
            writer = SMALL if sure else LARGE
        assert beginning(SERVED, setting, [first, 7], 100) == marks
