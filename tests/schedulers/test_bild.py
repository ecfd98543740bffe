"""BiLD: drafts, and what the large model takes back."""

from __future__ import annotations

import math

import pytest

from tests.schedulers.served import Served, beginning, drafting
from tests.subserver.reference import TimedModel
from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Check, Decision, Request, Step
from tokenrouter.schedulers.bild import LARGE, SMALL, BiLD
from tokenrouter.schedulers.signals import Checks, TopProbability

PAIR = ["small", "large"]
PROMPT = [1, 2]


def draft(scheduler: BiLD, drafts: int, top: float = 0.9, ends: bool = False) -> Decision:
    """After a small step, with so many drafts after two final tokens."""
    request = Request([*PROMPT, 3, 4, *[5] * drafts], 2, SMALL, drafts=drafts)
    return scheduler.route(request, Step((9,), {"top_probability": top}, ends=ends))


def judge(scheduler: BiLD, *probabilities: float) -> Decision:
    checks = [Check(7, probability, False) for probability in probabilities]
    request = Request([*PROMPT, *[5] * len(checks)], 2, LARGE, drafts=len(checks))
    return scheduler.route(request, Step((9,), {}, checks))


def test_signals():
    scheduler = BiLD(PAIR)
    assert scheduler.drafts
    assert list(scheduler.signals(SMALL)) == [TopProbability()]
    assert list(scheduler.signals(LARGE)) == [Checks()]


def test_the_small_model_drafts_while_it_is_sure():
    scheduler = BiLD(PAIR)
    assert draft(scheduler, 0, 0.6) == Decision(1, SMALL, drafts=1)
    assert draft(scheduler, 8, 0.6) == Decision(1, SMALL, drafts=9)
    assert draft(scheduler, 9, 0.6) == Decision(1, LARGE, drafts=10)


def test_its_unsure_token_is_dropped():
    scheduler = BiLD(PAIR)
    for top in (0.5999, math.nan):
        assert draft(scheduler, 0, top) == Decision(0, LARGE)
        assert draft(scheduler, 4, top) == Decision(0, LARGE, drafts=4)
    assert draft(BiLD(PAIR, 0.3), 4, 0.5) == Decision(1, SMALL, drafts=5)


def test_a_draft_that_ends_the_output_is_checked_at_once():
    assert draft(BiLD(PAIR), 2, ends=True) == Decision(1, LARGE, drafts=3)
    assert draft(BiLD(PAIR), 2, 0.1, ends=True) == Decision(0, LARGE, drafts=2)


def test_likely_drafts_stay_and_the_large_model_adds_a_token():
    assert judge(BiLD(PAIR)) == Decision(1, SMALL)
    assert judge(BiLD(PAIR), 0.9, math.exp(-4.9999), 1.0) == Decision(1, SMALL)


@pytest.mark.parametrize("unlikely", [math.exp(-5.0001), 0.0, math.nan])
def test_the_first_unlikely_draft_goes_with_all_after_it(unlikely: float):
    assert judge(BiLD(PAIR), 0.9, unlikely, 0.9, 0.0) == Decision(1, SMALL, cut=3)
    assert judge(BiLD(PAIR), 0.9, 0.9, unlikely) == Decision(1, SMALL, cut=1)


def test_another_rollback():
    scheduler = BiLD(PAIR, rollback=1.0)
    assert judge(scheduler, 0.37) == Decision(1, SMALL)
    assert judge(scheduler, 0.36) == Decision(1, SMALL, cut=1)


def test_another_longest():
    assert draft(BiLD(PAIR, longest=1), 0) == Decision(1, LARGE, drafts=1)


def test_the_official_code_writes_the_first_token_with_the_large_model():
    scheduler = BiLD(PAIR, official=True)
    first = Request(PROMPT, 2, SMALL)
    assert scheduler.route(first, Step((9,), {"top_probability": 1.0})) == Decision(0, LARGE)
    assert draft(scheduler, 0) == Decision(1, SMALL, drafts=1)


def test_the_official_code_writes_one_more_token_after_a_rollback():
    scheduler = BiLD(PAIR, official=True)
    assert judge(scheduler, 0.9, 0.0) == Decision(1, LARGE, cut=1)
    assert judge(scheduler) == Decision(1, SMALL)
    assert judge(scheduler, 0.9) == Decision(1, SMALL)


@pytest.mark.parametrize(
    ("threshold", "args", "problem"),
    [
        (1.1, {}, "router_threshold: BiLD takes router thresholds from 0 to 1"),
        (None, {"longest": 0}, "algorithm_args.longest: must be a whole number of at least 1"),
        (None, {"rollback": -1}, "algorithm_args.rollback: must be a number of at least 0"),
        (None, {"rollback": math.nan}, "algorithm_args.rollback: must be a number"),
        (None, {"official": "yes"}, "algorithm_args.official: must be true or false, got 'yes'"),
    ],
)
def test_what_is_wrong_is_named(threshold: float | None, args: dict[str, object], problem: str):
    with pytest.raises(ConfigError, match=problem):
        BiLD(PAIR, threshold, **args)


SERVED = Served("bild", [
    (0.3, {"rollback": 1.0}), (0.2, {"rollback": 0.5, "longest": 3}),
    (0.3, {"rollback": 1.0, "official": True}), (None, {}),
], moments=(drafting,), takes_back=True)  # fmt: skip


def written_down(
    prompt: list[int],
    count: int,
    fallback: float = 0.6,
    rollback: float = 5.0,
    longest: int = 10,
    official: bool = False,
) -> list[int]:
    """The method as told, without a runtime."""
    small, large = TimedModel(SMALL), TimedModel(LARGE)
    out, marks = list(prompt), []

    def write(tokens: list[int], writer: int) -> None:
        out.extend(tokens)
        marks.extend(2 * token + writer for token in tokens)

    if official:
        write([large.step(out, [])[0]], LARGE)
    while len(marks) < count:
        drafts: list[int] = []
        while len(drafts) < longest:
            token, signals = small.step([*out, *drafts], [TopProbability()])
            if signals["top_probability"] < fallback:
                break
            drafts.append(token)
        checks = [large.check([*out, *drafts[:i]], draft) for i, draft in enumerate(drafts)]
        losses = [-math.log(check.probability) for check in checks]
        bad = next((i for i, loss in enumerate(losses) if loss > rollback), None)
        write(drafts[:bad], SMALL)
        write([large.step(out, [])[0] if bad is None else checks[bad].token], LARGE)
        if official and bad is not None:
            write([large.step(out, [])[0]], LARGE)
    return marks[:count]


@pytest.mark.parametrize("setting", range(4))
def test_the_plain_loop_equals_the_method_written_down(setting: int):
    threshold, args = SERVED.settings[setting]
    given = {"fallback": threshold} if threshold is not None else {}
    for first in range(100, 110):
        wanted = written_down([first, 7], 100, **given, **args)
        assert beginning(SERVED, setting, [first, 7], 100) == wanted
