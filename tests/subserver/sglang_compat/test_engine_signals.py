"""Signals equal those computed from Hugging Face's logits, in float64, by other formulas."""

from __future__ import annotations

import math

import pytest
import torch

from tests.subserver.sglang_compat.conftest import Served
from tests.subserver.sglang_compat.driver import Driver
from tests.subserver.sglang_compat.tiny_models import VOCABULARY
from tokenrouter.ipc.messages import Sampling
from tokenrouter.schedulers.signals import Entropy, TopLogits, TopProbability
from tokenrouter.subserver.engine import StepBatch, Visit

SIGNALS = (Entropy(), TopProbability(), TopLogits(4), TopLogits(1))


def check(served: Served, batch: StepBatch, visits: list[Visit], vocabulary: int) -> None:
    assert set(batch.signals) == {"entropy", "top_probability", "top_logits_4", "top_logits_1"}
    for row, visit in enumerate(visits):
        logits = served.model.logits(visit.tokens[: visit.computed]).double()[:vocabulary]
        log_total = math.log(sum(math.exp(logit) for logit in logits.tolist()))
        ordered = sorted(logits.tolist(), reverse=True)
        entropy = sum(-(x - log_total) * math.exp(x - log_total) for x in ordered)
        assert batch.signals[Entropy()][row] == pytest.approx(entropy, abs=1e-4)
        top = math.exp(ordered[0] - log_total)
        assert batch.signals[TopProbability()][row] == pytest.approx(top, abs=1e-5)
        assert batch.signals[TopLogits(4)][row] == pytest.approx(ordered[:4], abs=1e-4)
        assert batch.signals[TopLogits(1)][row] == pytest.approx(ordered[:1], abs=1e-4)


@pytest.mark.parametrize("temperature", [0.0, 3.0])
def test_of_prompts_chunks_and_single_tokens(
    served: Served, driver: Driver, temperature: float
) -> None:
    # Other prompts for each case: none of them may be cached.
    prompts = served.model.prompts(4, seed=30 + int(temperature))
    sampling = Sampling(max_new_tokens=64, temperature=temperature)
    visits = [driver.visit(prompt, sampling) for prompt in prompts]
    # The first row is a chunk: its signals are those of the token it stops at.
    work = [(visit, visit.pending - (row == 0)) for row, visit in enumerate(visits)]
    check(served, driver.step(work, SIGNALS), visits, VOCABULARY)
    for visit in visits[1:]:
        visit.tokens.append(20 + visit.uid)
    check(served, driver.step([(visit, 1) for visit in visits], SIGNALS), visits, VOCABULARY)


def test_none_declared(served: Served, driver: Driver) -> None:
    batch = driver.step([(driver.visit([5, 6, 7]), 3)])
    assert batch.signals == {}


def test_tokens_do_not_depend_on_signals(served: Served, driver: Driver) -> None:
    [prompt] = served.model.prompts(1, seed=40)
    visit = driver.visit(prompt)
    driver.admit(visit)
    with_signals = driver.step([(visit, visit.pending)], SIGNALS).tokens
    assert with_signals == served.model.reference(prompt).tokens[:1]


def test_a_smaller_vocabulary(served: Served, driver: Driver) -> None:
    [prompt] = served.model.prompts(1, seed=41)
    best = served.model.reference(prompt).tokens[0]
    logits = served.model.logits(prompt)
    visit = driver.visit(prompt)
    served.engine.limit_vocabulary(best)
    try:
        driver.admit(visit)
        batch = driver.step([(visit, visit.pending)], SIGNALS)
        assert batch.tokens == [int(logits[:best].argmax())]
        check(served, batch, [visit], best)
        hot = driver.visit(prompt, Sampling(max_new_tokens=1, temperature=50.0))
        driver.admit(hot)
        drawn = set()
        for _ in range(100):
            drawn.update(driver.step([(hot, hot.pending)], ()).tokens)
            driver.truncate(hot, len(prompt) - 1)
        assert max(drawn) < best
    finally:
        served.engine.limit_vocabulary(VOCABULARY)


def test_underflowing_probabilities(served: Served) -> None:
    from tokenrouter.subserver.sglang_compat import signals

    logits = torch.tensor([[0.0, -500.0, -1000.0], [1.0, 1.0, 1.0]])
    entropy, top = signals.columns(logits, [Entropy(), TopProbability()])
    assert entropy.flatten().tolist() == pytest.approx([0.0, math.log(3)])
    assert top.flatten().tolist() == pytest.approx([1.0, 1 / 3])
