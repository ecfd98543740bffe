"""SpecReason: drafts of a step, its score, and what replaces it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.schedulers.served import (
    Served,
    Steps,
    assert_exact,
    beginning,
    drafting,
    on_a_long_run,
    reading_scratch,
)
from tests.subserver.reference import TimedModel
from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Decision, Request, Step
from tokenrouter.schedulers.signals import TokenProbabilities
from tokenrouter.schedulers.spec_reason import LARGE, SCORING_PROMPT, SMALL, SpecReason

PAIR = ["small", "large"]
PROMPT = [1, 2]
WORD, LINE, BLANK = ord("a"), ord("\n"), 1000


class Text:
    """Characters; one token is a blank line."""

    def encode(self, text: str) -> list[int]:
        return list(map(ord, text))

    def decode(self, ids: Sequence[int]) -> str:
        return "".join("\n\n" if each == BLANK else chr(each) for each in ids)


def made(threshold: float | None = None, **args: object) -> SpecReason:
    scheduler = SpecReason(PAIR, threshold, **args)
    scheduler.vocabulary = Text()
    return scheduler


def with_drafts(scheduler: SpecReason, *drafts: int) -> Request:
    """The small model has written ``drafts`` of a step after two final tokens."""
    request = Request([*PROMPT, 3, LINE], 2, SMALL)
    scheduler.receive(request, b"")
    request.tokens = [*request.tokens, *drafts]
    request.drafts = len(drafts)
    return request


def scored(scheduler: SpecReason, step: Step) -> Decision:
    """Of the large model, handed three drafts."""
    request = Request([*PROMPT, 3, 4, 5, 6], 2, LARGE, drafts=3)
    scheduler.receive(request, b"")
    assert request.scratch == Text().encode(scheduler.scoring_prompt)
    return scheduler.route(request, step)


def greedy(token: str) -> Step:
    return Step(Text().encode(token), {}, scratch=True)


def test_the_small_model_drafts_up_to_a_blank_line():
    scheduler = made()
    assert scheduler.drafts
    request = with_drafts(scheduler)
    assert scheduler.route(request, Step((LINE,), {})) == Decision(1, SMALL, drafts=1)
    request = with_drafts(scheduler, WORD, LINE)
    assert scheduler.route(request, Step((WORD,), {})) == Decision(1, SMALL, drafts=3)
    assert scheduler.route(request, Step((LINE,), {})) == Decision(1, LARGE, drafts=3)
    assert scheduler.route(request, Step((BLANK,), {})) == Decision(1, LARGE, drafts=3)


def test_a_step_has_a_longest_length():
    scheduler = made(longest=3)
    request = with_drafts(scheduler, WORD)
    assert scheduler.route(request, Step((WORD,), {})) == Decision(1, SMALL, drafts=2)
    request = with_drafts(scheduler, WORD, WORD)
    assert scheduler.route(request, Step((WORD,), {})) == Decision(1, LARGE, drafts=3)
    assert made().longest == 512


def test_a_draft_that_ends_the_output_is_scored_with_its_step():
    request = with_drafts(made(), WORD)
    assert made().route(request, Step((WORD,), {}, ends=True)) == Decision(1, LARGE, drafts=2)


def test_the_large_model_reads_the_scoring_prompt_only_where_there_is_a_step():
    scheduler = made()
    for member in (SMALL, LARGE):
        request = Request(PROMPT, 2, member)
        scheduler.receive(request, b"")
        assert not request.scratch


@pytest.mark.parametrize(
    ("written", "kept"), [("7", True), ("9", True), ("6", False), ("0", False), ("x", False),
                          ("", False), ("10", False), ("\u0667", False)],
)  # fmt: skip
def test_a_greedy_digit_is_the_score(written: str, kept: bool):
    wanted = Decision(0, SMALL) if kept else Decision(0, LARGE, cut=3)
    token = 2000
    scheduler = made()
    text = Text()
    text.decode = lambda ids: written  # type: ignore[method-assign]
    scheduler.vocabulary = text
    assert scored(scheduler, Step((token,), {}, scratch=True)) == wanted


def test_another_least_score():
    assert scored(made(3), greedy("3")) == Decision(0, SMALL)
    assert scored(made(3.5), greedy("3")) == Decision(0, LARGE, cut=3)
    assert scored(made(0), greedy("x")) == Decision(0, SMALL)


def test_the_mean_over_the_renormalised_digits():
    scheduler = made(score="mean")
    [signal] = scheduler.signals(LARGE)
    assert signal == TokenProbabilities(tuple(map(ord, "0123456789")))
    assert list(scheduler.signals(SMALL)) == []

    def mean(*probabilities: float) -> Decision:
        values = {"token_probabilities": probabilities}
        return scored(scheduler, Step((ord("9"),), values, scratch=True))

    keep, rewrite = Decision(0, SMALL), Decision(0, LARGE, cut=3)
    assert mean(0, 0, 0, 0, 0, 0, 0.125, 0, 0.125, 0) == keep  # 7
    assert mean(0, 0, 0, 0, 0, 0, 0.125, 0, 0.0625, 0) == rewrite  # 6.67
    assert mean(0.25, 0, 0, 0, 0, 0, 0, 0, 0, 0.5) == rewrite  # 6
    assert mean(*[0.0] * 10) == rewrite


def test_without_a_mean_no_signal_is_computed():
    assert list(made().signals(LARGE)) == []


def test_signals_may_be_asked_for_where_there_is_no_vocabulary():
    assert list(SpecReason(PAIR, score="mean").signals(LARGE)) == []


def test_the_large_model_rewrites_a_step_and_hands_back():
    scheduler = made(longest=4)
    request = Request([*PROMPT, 3, 4, 5, 6], 2, LARGE, drafts=3)
    scheduler.receive(request, b"")
    assert scheduler.route(request, greedy("2")) == Decision(0, LARGE, cut=3)
    request.drafts, request.tokens = 0, request.tokens[:-3]
    for _ in range(3):
        assert scheduler.route(request, Step((WORD,), {})) == Decision(1, LARGE)
        assert scheduler.route(request, Step((BLANK,), {})) == Decision(1, SMALL)
        request.tokens = [*request.tokens, WORD]
    assert scheduler.route(request, Step((WORD,), {})) == Decision(1, SMALL), "four tokens"


def test_scratch_tokens_bounds_the_scoring_prompt():
    assert made().scratch_tokens > len(SCORING_PROMPT)
    assert made(scoring_prompt="é").scratch_tokens == 3


@pytest.mark.parametrize(
    ("threshold", "args", "problem"),
    [
        (9.5, {}, "router_threshold: SpecReason takes router thresholds from 0 to 9"),
        (None, {"score": "median"}, "algorithm_args.score: must be one of greedy, mean"),
        (None, {"longest": 0}, "algorithm_args.longest: must be a whole number of at least 1"),
        (None, {"delimiter": ""}, "algorithm_args.delimiter: must be a text"),
        (None, {"scoring_prompt": ""}, "algorithm_args.scoring_prompt: must be a text"),
    ],
)
def test_what_is_wrong_is_named(threshold: float | None, args: dict[str, object], problem: str):
    with pytest.raises(ConfigError, match=problem):
        made(threshold, **args)


SERVED = Served("spec_reason", [
    (4.5, {"score": "mean", "scoring_prompt": "mark"}), (2, {"scoring_prompt": "mark"}),
    (4.0, {"score": "mean", "scoring_prompt": "!", "longest": 4}), (0, {"scoring_prompt": "!"}),
], scratch=5, vocabulary=Steps(), moments=(drafting, reading_scratch, on_a_long_run),
   takes_back=True)  # fmt: skip
STOPPING = Served("spec_reason", [
    (4.5, {"score": "mean", "scoring_prompt": "mark", "longest": 5}),
], scratch=5)  # fmt: skip


def test_stop_strings_in_drafts_and_in_what_replaces_them():
    assert_exact(STOPPING, 0, scarce=False)


def written_down(prompt: list[int], count: int, setting: int) -> list[int]:
    """The method as told, without a runtime."""
    least, args = SERVED.settings[setting]
    text = Steps()

    def write(member: int, out: list[int]) -> list[int]:
        step: list[int] = []
        while len(step) < args.get("longest", 512) and "\n\n" not in text.decode(step):
            step.append(TimedModel(member).step([*out, *step], [])[0])
        return step

    def score(out: list[int]) -> float:
        digits = tuple(ord(digit) for digit in "0123456789")
        token, signals = TimedModel(LARGE).step(
            [*out, *map(ord, args["scoring_prompt"])], [TokenProbabilities(digits)]
        )
        weights = signals["token_probabilities"]
        if "score" in args:
            return sum(digit * weight for digit, weight in enumerate(weights)) / sum(weights)
        return float(text.decode([token])) if text.decode([token]).isdecimal() else 0.0

    out, marks = list(prompt), []
    while len(marks) < count:
        step, writer = write(SMALL, out), SMALL
        if score([*out, *step]) < least:
            step, writer = write(LARGE, out), LARGE
        out += step
        marks += [2 * token + writer for token in step]
    return marks[:count]


@pytest.mark.parametrize("setting", range(4))
def test_the_plain_loop_equals_the_method_written_down(setting: int):
    for first in range(100, 110):
        prompt = [first, 7]
        assert beginning(SERVED, setting, prompt, 60) == written_down(prompt, 60, setting)
