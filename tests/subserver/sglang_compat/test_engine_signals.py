"""Signals equal those computed from Hugging Face's logits, in float64, by other formulas."""

from __future__ import annotations

import math

import pytest
import scipy.special
import torch

from tests.subserver.sglang_compat.conftest import Served
from tests.subserver.sglang_compat.driver import Driver
from tests.subserver.sglang_compat.tiny_models import VOCABULARY
from tokenrouter.ipc.messages import Sampling
from tokenrouter.schedulers.signals import (
    Aleatoric,
    Entropy,
    Epistemic,
    NormalisedEntropy,
    TokenProbabilities,
    TopLogits,
    TopProbability,
)
from tokenrouter.subserver.engine import StepBatch, Visit

SIGNALS = (Entropy(), TopProbability(), TopLogits(4), TopLogits(1))


def check(served: Served, batch: StepBatch, visits: list[Visit], vocabulary: int) -> None:
    assert set(batch.signals) == set(SIGNALS)
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


def test_uncertainties_equal_their_formulas_in_float64() -> None:
    from tokenrouter.subserver.sglang_compat import signals

    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(200, 500, generator=generator) * 3 + torch.linspace(0, 30, 200)[:, None]
    logits = torch.cat([logits, torch.linspace(0.5, 40.0, 500)[None]])
    aleatoric, epistemic = signals.columns(logits, [Aleatoric(), Epistemic()])
    assert aleatoric.dtype == torch.float32
    for row, au, eu in zip(logits.double().tolist(), aleatoric, epistemic, strict=True):
        top = sorted(row, reverse=True)[:10]
        total = sum(top)
        digamma = scipy.special.digamma
        wanted = -sum(x / total * (digamma(x + 1) - digamma(total + 1)) for x in top)
        assert float(au) == pytest.approx(wanted, abs=2e-5)
        assert float(eu) == pytest.approx(10 / (total + 10), rel=1e-5)


def test_equal_logits_are_most_uncertain() -> None:
    from tokenrouter.subserver.sglang_compat import signals

    logits = torch.tensor([[30.0] * 20, [30.0, *[0.0] * 19], [-1.0] * 20])
    aleatoric, epistemic = signals.columns(logits, [Aleatoric(), Epistemic()])
    # psi(301) - psi(31); psi(31) - psi(31); a pole.
    assert aleatoric.flatten().tolist()[:2] == pytest.approx([2.287677, 0.0], abs=1e-5)
    assert not math.isfinite(float(aleatoric[2]))
    assert epistemic.flatten().tolist()[:2] == pytest.approx([10 / 310, 10 / 40])


def test_normalised_entropy_is_of_the_tokens_there_are() -> None:
    from tokenrouter.subserver.sglang_compat import signals

    logits = torch.tensor([[2.0] * 7, [0.0, 0.0, *[-500.0] * 5]])
    [values] = signals.columns(logits, [NormalisedEntropy()])
    assert values.flatten().tolist() == pytest.approx([1.0, math.log(2) / math.log(7)])


def test_what_is_no_token_has_no_probability() -> None:
    from tokenrouter.subserver.sglang_compat import signals

    declared = [TokenProbabilities((2, 5, 0, 1 << 70)), TokenProbabilities(())]
    some, none = signals.columns(torch.zeros(2, 5), declared)
    assert some.tolist() == [pytest.approx([0.2, 0.0, 0.2, 0.0])] * 2
    assert none.shape == (2, 0)


def test_numbers_and_lists_come_to_the_host_as_such() -> None:
    from tokenrouter.subserver.sglang_compat import signals

    declared = [Epistemic(), TopLogits(3), NormalisedEntropy(), Aleatoric()]
    logits = torch.randn(2, 40, generator=torch.Generator().manual_seed(8)) + 5
    blocks = signals.columns(logits, declared)
    tokens, values = signals.fetch(torch.tensor([4, 9]), declared, blocks)
    assert tokens == [4, 9]
    for signal, block in zip(declared, blocks, strict=True):
        wanted = block.tolist() if isinstance(signal, TopLogits) else block.flatten().tolist()
        assert values[signal] == wanted
