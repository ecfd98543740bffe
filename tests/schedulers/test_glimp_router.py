"""GlimpRouter: who writes a step is told by its first token."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy
import pytest
import scipy.stats

from tests.schedulers.served import Served, Steps, beginning, on_a_long_run
from tests.subserver.reference import TimedModel
from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Decision, Request, Step
from tokenrouter.schedulers.glimp_router import LARGE, SMALL, GlimpRouter, entropy_of
from tokenrouter.schedulers.signals import TopLogits

PAIR = ["small", "large"]
WORD, LINE, BLANK, THINK_END = ord("a"), ord("\n"), 1000, 1001
SURE = [9.0, *[0.0] * 19]
UNSURE = [0.0] * 20


class Text:
    def encode(self, text: str) -> list[int]:
        return list(map(ord, text))

    def decode(self, ids: Sequence[int]) -> str:
        special = {BLANK: "x\n\ny", THINK_END: "</think>"}
        return "".join(special.get(each) or chr(each) for each in ids)


def made(threshold: float | None = None, **args: str) -> GlimpRouter:
    scheduler = GlimpRouter(PAIR, threshold, **args)
    scheduler.vocabulary = Text()
    return scheduler


def arrived(scheduler: GlimpRouter, member: int, *tokens: int, payload: bytes = b"") -> Request:
    """Control arrives at ``member`` after ``tokens``."""
    request = Request([1, 2, *tokens], 2, member)
    request.state = scheduler.start(request)
    scheduler.receive(request, payload)
    return request


def steps(scheduler: GlimpRouter, request: Request, *tokens: int, logits=SURE) -> list[Decision]:
    """Steps that write ``tokens``, as long as the member stays."""
    decisions = []
    for token in tokens:
        decisions.append(scheduler.route(request, Step((token,), {"top_logits_20": logits})))
        request.tokens = [*request.tokens, token]
    return decisions


def test_only_the_small_model_computes_logits():
    assert list(made().signals(SMALL)) == [TopLogits(20)]
    assert list(made().signals(LARGE)) == []


def test_an_unsure_first_token_is_dropped():
    scheduler = made()
    for logits in (UNSURE, [math.nan] * 20, [9.0, 8.5, 8.0, *[0.0] * 17]):
        request = arrived(scheduler, SMALL)
        assert steps(scheduler, request, WORD, logits=logits) == [Decision(0, LARGE)]
        assert scheduler.send(request, Step((WORD,), {}), Decision(0, LARGE)) == b""


def test_only_the_first_token_of_a_step_matters():
    scheduler = made()
    request = arrived(scheduler, SMALL)
    assert steps(scheduler, request, WORD) == [Decision(1, SMALL)]
    assert steps(scheduler, request, WORD, LINE, LINE, logits=UNSURE) == [Decision(1, SMALL)] * 3
    assert steps(scheduler, request, WORD, logits=UNSURE) == [Decision(0, LARGE)], "the next step"


def test_the_large_model_writes_a_whole_step():
    scheduler = made()
    request = arrived(scheduler, LARGE, LINE)
    assert steps(scheduler, request, LINE, WORD, BLANK) == [
        Decision(1, LARGE), Decision(1, LARGE), Decision(1, SMALL),
    ]  # fmt: skip
    assert scheduler.send(request, Step((BLANK,), {}), Decision(1, SMALL)) == b""


@pytest.mark.parametrize("spelling", [[THINK_END], list(map(ord, "</think>"))])
def test_the_answer_is_the_large_models(spelling: list[int]):
    scheduler = made()
    request = arrived(scheduler, SMALL)
    *before, last = steps(scheduler, request, WORD, *spelling)
    assert set(before) <= {Decision(1, SMALL)}
    assert last == Decision(1, LARGE)
    payload = scheduler.send(request, Step(spelling[-1:], {}), last)
    there = arrived(scheduler, LARGE, WORD, *spelling, payload=payload)
    assert steps(scheduler, there, WORD, BLANK, BLANK, WORD) == [Decision(1, LARGE)] * 4


def test_the_large_model_may_end_the_reasoning():
    scheduler = made()
    request = arrived(scheduler, LARGE, WORD)
    assert steps(scheduler, request, WORD, THINK_END, BLANK) == [Decision(1, LARGE)] * 3


def test_the_end_of_reasoning_may_begin_in_another_step():
    letters = list(map(ord, "\n\n</think>"))
    scheduler = made(delimiter="</")
    request = arrived(scheduler, SMALL)
    assert steps(scheduler, request, *letters) == [Decision(1, SMALL)] * 9 + [Decision(1, LARGE)]


def test_reasoning_in_the_prompt_is_not_the_outputs():
    scheduler = made()
    request = Request([THINK_END, BLANK], 2, SMALL)
    request.state = scheduler.start(request)
    scheduler.receive(request, b"")
    assert steps(scheduler, request, WORD) == [Decision(1, SMALL)]


def test_entropy_is_renormalised_and_in_nats():
    assert entropy_of([3.0] * 20) == pytest.approx(math.log(20))
    assert entropy_of([900.0, -900.0]) == 0.0
    rng = random.Random(6)
    for _ in range(50):
        logits = sorted((rng.gauss(0, 5) for _ in range(20)), reverse=True)
        weights = numpy.exp(logits)
        assert entropy_of(logits) == pytest.approx(scipy.stats.entropy(weights), rel=1e-9)


def test_a_threshold():
    even = [1.0, 1.0, *[-99.0] * 18]  # ln 2
    for threshold, decision in ((0.69, Decision(0, LARGE)), (0.70, Decision(1, SMALL))):
        scheduler = made(threshold)
        assert steps(scheduler, arrived(scheduler, SMALL), WORD, logits=even) == [decision]
    assert made().tau == 1.0


@pytest.mark.parametrize(
    ("threshold", "args", "problem"),
    [
        (-1.0, {}, "router_threshold: GlimpRouter takes router thresholds from 0 to inf"),
        (None, {"delimiter": ""}, "algorithm_args.delimiter: must be a text"),
        (None, {"think_end": ""}, "algorithm_args.think_end: must be a text"),
    ],
)
def test_what_is_wrong_is_named(threshold: float | None, args: dict[str, str], problem: str):
    with pytest.raises(ConfigError, match=problem):
        made(threshold, **args)


SERVED = Served("glimp_router", [
    (2.955, {}), (2.96, {"think_end": "e\n\nN"}), (2.95, {"delimiter": "\n"}),
], vocabulary=Steps(), moments=(on_a_long_run,))  # fmt: skip


def written_down(prompt: list[int], count: int, setting: int) -> list[int]:
    """The method as told, without a runtime."""
    tau, args = SERVED.settings[setting]
    decode = Steps().decode
    out: list[int] = []
    marks: list[int] = []
    while len(marks) < count:
        _, signals = TimedModel(SMALL).step([*prompt, *out], [TopLogits(20)])
        unsure = scipy.stats.entropy(numpy.exp(signals["top_logits_20"])) >= tau
        step: list[int] = []
        while args.get("delimiter", "\n\n") not in decode(step) and len(marks) < count:
            over = args.get("think_end", "</think>") in decode(out)
            writer = LARGE if unsure or over else SMALL
            token, _ = TimedModel(writer).step([*prompt, *out], [])
            step.append(token)
            out.append(token)
            marks.append(2 * token + writer)
            if over:
                step.clear()
    return marks


@pytest.mark.parametrize("setting", range(3))
def test_the_plain_loop_equals_the_method_written_down(setting: int):
    for first in range(100, 110):
        prompt = [first, 7]
        assert beginning(SERVED, setting, prompt, 100) == written_down(prompt, 100, setting)
