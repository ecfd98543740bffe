"""Checks of drafts equal what plain code makes of them, one full forward pass each."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from tests.plain_sampling import adjusted
from tests.subserver.sglang_compat.conftest import Served
from tests.subserver.sglang_compat.driver import EOS_IDS, Driver, output
from tests.subserver.sglang_compat.tiny_models import MARGIN, VOCABULARY, TinyModel
from tokenrouter.ipc.messages import Logprob, Sampling
from tokenrouter.subserver.engine import Checked, Visit, to_check

TOLERANCE = 1e-4


def greedy(**more: object) -> Sampling:
    return Sampling(64, temperature=0.0, **more)


PLAIN = greedy()
RULES = [
    greedy(frequency_penalty=1.5, presence_penalty=0.5),
    greedy(repetition_penalty=1.6),
    greedy(min_new_tokens=5, logit_bias={1: 25.0, 7: 24.0, 9: 20.0}),
    greedy(frequency_penalty=0.3, repetition_penalty=1.3, logit_bias={1: 30.0}, min_new_tokens=4),
]


def tell(model: TinyModel, visit: Visit, prefix: Sequence[int]) -> torch.Tensor:
    """Adjusted logits after ``prefix``."""
    start = visit.prompt_length
    raw = model.logits(list(prefix))
    return adjusted(raw, visit.sampling, prefix[:start], prefix[start:], EOS_IDS)


def assert_right(model: TinyModel, visit: Visit) -> None:
    """What has been found of the drafts of a visit, whose last step's tokens are not kept."""
    assert len(visit.checked) == visit.unchecked
    first = visit.length - visit.unchecked - visit.scratch
    for position, checked in enumerate(visit.checked, first):
        draft, prefix = visit.tokens[position], visit.tokens[:position]
        raw = torch.softmax(model.logits(prefix), dim=-1)
        assert checked.check.probability == pytest.approx(float(raw[draft]), abs=TOLERANCE)
        best = tell(model, visit, prefix).topk(2)
        if best.values[0] - best.values[1] > MARGIN:
            assert checked.check.token == int(best.indices[0])
        assert checked.check.accepted == (checked.check.token == draft)


def drafts_of(model: TinyModel, visit: Visit, rng: random.Random, count: int) -> list[int]:
    """Some that this member would write, and some that it would not."""
    tokens = list(visit.tokens)
    for _ in range(count):
        own = int(tell(model, visit, tokens).argmax())
        tokens.append(own if rng.random() < 0.6 else rng.randrange(5, VOCABULARY))
    return tokens[visit.length :]


def hand_some(driver: Driver, model: TinyModel, visit: Visit, rng: random.Random) -> None:
    driver.hand(visit, drafts_of(model, visit, rng, rng.randint(1, 6)))


def settle(visit: Visit) -> None:
    visit.unchecked = 0
    visit.checked.clear()


@pytest.fixture
def rng() -> Iterator[random.Random]:
    return random.Random(1)


def test_beside_prompts_and_single_tokens(
    served: Served, driver: Driver, rng: random.Random
) -> None:
    prompts = served.model.prompts(7, seed=80)
    checking = [driver.visit(*case) for case in zip(prompts, [PLAIN, *RULES], strict=False)]
    decoding, fresh = driver.visit(prompts[5]), driver.visit(prompts[6])
    driver.write([*checking, decoding], 2)
    driver.admit(fresh)
    accepted: set[bool] = set()
    for _ in range(3):
        for visit in checking:
            hand_some(driver, served.model, visit, rng)
        rows = [decoding, *checking, fresh]
        batch = driver.step([(visit, visit.pending) for visit in rows])
        assert sorted(batch.checks) == [1, 2, 3, 4, 5]
        for visit, token in zip(rows, batch.tokens, strict=True):
            if visit.unchecked:
                assert_right(served.model, visit)
                accepted |= {each.check.accepted for each in visit.checked}
                settle(visit)
            best = tell(served.model, visit, visit.tokens).topk(2)
            assert token == int(best.indices[0]) or best.values[0] - best.values[1] < MARGIN
            visit.tokens.append(token)
    assert accepted == {True, False}
    for visit in (decoding, fresh):
        prompt = visit.tokens[: visit.prompt_length]
        wanted = served.model.reference(prompt).tokens
        assert output(visit) == wanted[: len(output(visit))]


@pytest.mark.parametrize("chunk", [1, 2, 3])
@pytest.mark.parametrize("alone", [True, False])
def test_over_several_steps(
    served: Served, driver: Driver, rng: random.Random, chunk: int, alone: bool
) -> None:
    """In chunks of one token a batch of one visit is a DECODE."""
    prompts = served.model.prompts(2, seed=81)
    visit, other = driver.visit(prompts[0], RULES[0]), driver.visit(prompts[1])
    driver.write([visit], 1)
    driver.hand(visit, drafts_of(served.model, visit, rng, 6))
    driver.admit(other)
    counts = []
    while visit.pending:
        rows = [(visit, min(chunk, visit.pending))]
        if not alone:
            rows = [(other, other.pending), *rows]
        batch = driver.step(rows)
        counts.append(len(batch.checks.get(len(rows) - 1, ())))
        if not alone:
            other.tokens.append(batch.tokens[0])
    assert sum(counts) == 6
    assert_right(served.model, visit)


def test_of_a_prompt_that_comes_with_drafts(served: Served, driver: Driver) -> None:
    """Twice: the second time the prefix cache knows them, which saves no check."""
    [prompt] = served.model.prompts(1, seed=82)
    drafts = [*served.model.reference(prompt).tokens[:3], 17, 18]
    for _ in range(2):
        visit = driver.visit(prompt)
        driver.hand(visit, drafts)
        driver.admit(visit)
        assert visit.computed < visit.prompt_length
        driver.step([(visit, visit.pending)])
        assert_right(served.model, visit)
        assert [each.check.accepted for each in visit.checked] == [True] * 3 + [False] * 2
        driver.release(visit)


def test_again_after_an_eviction(served: Served, driver: Driver, rng: random.Random) -> None:
    [prompt] = served.model.prompts(1, seed=83)
    visit = driver.visit(prompt, RULES[3])
    driver.write([visit], 2)
    driver.hand(visit, drafts_of(served.model, visit, rng, 5))
    driver.step([(visit, 3)])
    driver.release(visit)
    driver.admit(visit)
    driver.step([(visit, visit.pending)])
    assert_right(served.model, visit)


def test_drafts_taken_back_leave_nothing(
    served: Served, driver: Driver, rng: random.Random
) -> None:
    """The drafts that stand are those the member writes alone."""
    for sampling in (PLAIN, *RULES):
        [prompt] = served.model.prompts(1, seed=84)
        alone, visit = driver.visit(prompt, sampling), driver.visit(prompt, sampling)
        driver.write([alone], 16)
        while len(output(visit)) < 16:
            driver.verify(visit, drafts_of(served.model, visit, rng, rng.randint(1, 6)))
        assert output(visit)[:16] == output(alone), sampling


@pytest.mark.parametrize("rules", [{}, {"presence_penalty": 0.7, "min_new_tokens": 9, "top_k": 9}])
def test_seeded_tokens_are_those_of_the_positions(
    served: Served, driver: Driver, rules: dict[str, object]
) -> None:
    [prompt] = served.model.prompts(1, seed=85)
    sampling = Sampling(64, temperature=1.5, seed=3, **rules)
    alone, visit = driver.visit(prompt, sampling), driver.visit(prompt, sampling)
    driver.write([alone], 8)
    written = output(alone)
    driver.hand(visit, [*written[:3], 20, 21])
    driver.admit(visit)
    driver.step([(visit, visit.pending - 3)])
    driver.step([(visit, visit.pending)])
    found = [each.check for each in visit.checked]
    assert [each.token for each in found[:4]] == written[:4]
    assert [each.accepted for each in found] == [
        *[True] * 3,
        written[3] == 20,
        found[4].token == 21,
    ]
    other = driver.visit([*prompt], sampling)
    other.tokens += [*written[:3], 20]
    driver.admit(other)
    assert driver.step([(other, other.pending)]).tokens == [found[4].token]


def test_sampled_tokens_are_likely_ones(radix: Served, radix_driver: Driver) -> None:
    torch.manual_seed(4)
    [prompt] = radix.model.prompts(1, seed=86)
    visit = radix_driver.visit(prompt, Sampling(64, temperature=2.0, top_k=2))
    drafts = radix.model.reference(prompt).tokens[:4]
    found: list[set[int]] = [set() for _ in drafts]
    for _ in range(30):
        radix_driver.hand(visit, drafts)
        radix_driver.admit(visit)
        radix_driver.step([(visit, visit.pending)])
        for tokens, checked in zip(found, visit.checked, strict=True):
            tokens.add(checked.check.token)
        radix_driver.cut(visit, len(prompt))
        settle(visit)
    for i, tokens in enumerate(found):
        wanted = radix.model.logits([*prompt, *drafts[:i]]).topk(2)
        assert tokens == set(wanted.indices.tolist())


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_log_probabilities(served: Served, driver: Driver, temperature: float) -> None:
    prompts = served.model.prompts(2, seed=87)
    asking = Sampling(64, temperature, logprobs=2, frequency_penalty=0.4, seed=2)
    visit, silent = driver.visit(prompts[0], asking), driver.visit(prompts[1])
    drafts = [17, *served.model.reference(prompts[0]).tokens[:2]]
    driver.hand(visit, drafts)
    driver.hand(silent, drafts)
    for each in (silent, visit):
        driver.admit(each)
    batch = driver.step([(silent, silent.pending), (visit, visit.pending)])
    assert list(batch.logprobs) == [1]
    assert [each.logprobs for each in batch.checks[0]] == [None] * 3
    for i, checked in enumerate(batch.checks[1]):
        logits = tell(served.model, visit, [*prompts[0], *drafts[:i]])
        wanted = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
        assert_told(checked, drafts[i], wanted)


def assert_told(checked: Checked, draft: int, wanted: torch.Tensor) -> None:
    assert checked.logprobs is not None
    for told, token in zip(checked.logprobs, (draft, checked.check.token), strict=True):
        assert told.logprob == pytest.approx(float(wanted[token]), abs=TOLERANCE)
        assert_best(told, wanted)


def assert_best(told: Logprob, wanted: torch.Tensor) -> None:
    assert [value for _, value in told.top] == pytest.approx(
        wanted.topk(2).values.tolist(), abs=TOLERANCE
    )


SCRATCH = [30, 31, 32]


@pytest.mark.parametrize("drafts", [[], [17, 18]])
def test_scratch_tokens_are_read_greedily_and_without_rules(
    served: Served, driver: Driver, drafts: list[int]
) -> None:
    [prompt] = served.model.prompts(1, seed=88)
    sampling = Sampling(64, temperature=5.0, logprobs=1, frequency_penalty=9.0, min_new_tokens=9)
    visit = driver.visit(prompt, sampling)
    driver.write([visit], 2)
    driver.hand(visit, drafts)
    before = list(visit.tokens)
    visit.scratch = len(SCRATCH)
    visit.tokens += SCRATCH
    batch = driver.step([(visit, visit.pending)])
    assert batch.tokens == [int(served.model.logits([*before, *SCRATCH]).argmax())]
    assert not batch.logprobs
    assert len(visit.checked) == len(drafts)
    for i, checked in enumerate(visit.checked):
        raw = torch.softmax(served.model.logits(before[: len(before) - len(drafts) + i]), dim=-1)
        wanted = float(raw[drafts[i]])
        assert checked.check.probability == pytest.approx(wanted, abs=TOLERANCE)
    visit.scratch = 0
    driver.cut(visit, len(before))
    settle(visit)
    again = driver.visit(prompt, visit.sampling)
    again.tokens[:] = before
    driver.admit(again)
    rows = [(each, each.pending) for each in (visit, again)]
    first, second = driver.step(rows).logprobs.values()
    assert [value for _, value in first.top] == pytest.approx([v for _, v in second.top], abs=1e-4)


def test_nothing_to_check_captures_nothing(
    radix: Served, radix_driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenrouter.subserver.sglang_compat import engine

    stock, captured = engine.build_batch, []

    def spy(*arguments: Any) -> Any:
        batch = stock(*arguments)
        captured.append(batch.capture_hidden_mode.need_capture())
        return batch

    monkeypatch.setattr(engine, "build_batch", spy)
    visit = radix_driver.visit([5, 6, 7])
    radix_driver.write([visit], 2)
    radix_driver.hand(visit, [8, 9])
    radix_driver.step([(visit, visit.pending)])
    settle(visit)
    visit.tokens.append(10)
    radix_driver.step([(visit, visit.pending)])
    assert captured == [False, False, True, False]


def test_the_tokens_that_drafts_follow() -> None:
    driver = Driver(None)  # type: ignore[arg-type]
    plain, visit = driver.visit([1, 2, 3]), driver.visit([1, 2, 3, 4])
    visit.tokens += [5, 6, 7]
    visit.unchecked, visit.computed = 3, 2
    assert to_check([(plain, 3), (visit, 5)]) == [3 + 1, 3 + 2, 3 + 3]
    assert to_check([(visit, 2), (plain, 3)]) == [1]
    assert to_check([(visit, 1)]) == []
