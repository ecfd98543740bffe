"""Draws with a seed: right in distribution, and the same whatever happens around them."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.plain_sampling import adjusted, limited
from tests.subserver.sglang_compat.conftest import Served
from tests.subserver.sglang_compat.driver import EOS_IDS, Driver, output
from tests.subserver.sglang_compat.test_engine_sampling import fits
from tokenrouter.ipc.messages import Sampling
from tokenrouter.schedulers.base import Request
from tokenrouter.subserver.sglang_compat.sampling import draw_of
from tokenrouter.subserver.sglang_compat.seeded import invert

PROMPT = list(range(100, 120))
DRAWS = 4000
LIMITS = {
    "none": {"temperature": 1.5},
    "top_k": {"top_k": 4},
    "top_p": {"top_p": 0.6, "temperature": 1.3},
    "min_p": {"min_p": 0.2},
    "all": {"top_k": 9, "top_p": 0.8, "min_p": 0.05, "temperature": 2.0},
}


def uniforms(count: int, vary: str) -> list[float]:
    """Draws of ``count`` requests that differ in one thing only."""
    requests = (
        Request(PROMPT, len(PROMPT), 0, seed=i if vary == "seed" else 5, sample=i * (vary == "n"))
        for i in range(count)
    )
    if vary == "position":
        requests = (Request([*PROMPT, *range(i)], len(PROMPT), 0, 5) for i in range(count))
    return [request.draw(-1) for request in requests]


@pytest.mark.parametrize("vary", ["seed", "n", "position"])
@pytest.mark.parametrize("name", LIMITS)
def test_distribution(radix: Served, name: str, vary: str) -> None:
    sampling = Sampling(1, **LIMITS[name])
    logits = radix.model.logits(PROMPT)
    rows = logits.expand(DRAWS, -1)
    tokens = invert(rows, [draw_of(sampling)] * DRAWS, uniforms(DRAWS, vary)).tolist()
    wanted = limited(logits, sampling)
    assert set(tokens) <= set(wanted.nonzero().flatten().tolist())
    assert fits(tokens, wanted)
    other = Sampling(1, **{**LIMITS[name], "temperature": 3 * sampling.temperature})
    assert not fits(tokens, limited(logits, other))


def test_extremes_end_at_possible_tokens() -> None:
    logits = torch.tensor([[-torch.inf, 1.0, -torch.inf, 1.0, -torch.inf]] * 2)
    draws = [draw_of(Sampling(1))] * 2
    assert invert(logits, draws, [0.0, 1.0 - 2.0**-53]).tolist() == [1, 3]


def sampling(**more: object) -> Sampling:
    return Sampling(64, temperature=1.2, **{"seed": 11, "top_p": 0.95, **more})


def alone(driver: Driver, prompt: list[int], count: int, asked: Sampling) -> list[int]:
    visit = driver.visit(prompt, asked)
    driver.write([visit], count)
    written = output(visit)
    driver.truncate(visit, 0)
    driver.release(visit)
    return written


def test_a_batch_changes_nothing(served: Served, driver: Driver) -> None:
    prompts = served.model.prompts(3, seed=70)
    wanted = [alone(driver, prompt, 12, sampling()) for prompt in prompts]
    torch.manual_seed(1)
    others = [Sampling(64, temperature=1.0), Sampling(64, temperature=0.0), sampling(seed=12)]
    noise = [driver.visit(prompts[0], each) for each in others]
    visits = [driver.visit(prompt, sampling()) for prompt in prompts]
    for i in range(6):
        driver.write([*visits[i % 2 :], *noise], 1)
    for visit, tokens in zip(visits, wanted, strict=True):
        assert output(visit) == tokens[: len(output(visit))]
        assert len(output(visit)) >= 3


def test_eviction_chunks_and_rollback_change_nothing(served: Served, driver: Driver) -> None:
    [prompt] = served.model.prompts(1, seed=71)
    wanted = alone(driver, prompt, 12, sampling(presence_penalty=0.5))
    visit = driver.visit(prompt, sampling(presence_penalty=0.5))
    driver.write([visit], 4)
    driver.release(visit)
    driver.admit(visit)
    while visit.pending > 1:
        driver.step([(visit, 1)])
    driver.write([visit], 3)
    length = visit.length
    visit.tokens += [33, 44]
    driver.step([(visit, visit.pending)])
    driver.cut(visit, length - 1)
    driver.write([visit], 3)
    assert output(visit) == wanted[: len(output(visit))]


def test_seed_sample_prompt_and_member_each_matter(radix: Served, radix_driver: Driver) -> None:
    prompt, other = radix.model.prompts(2, seed=72)
    hot = Sampling(64, temperature=3.0, seed=1)
    visits = [
        radix_driver.visit(prompt, hot),
        radix_driver.visit(prompt, Sampling(64, temperature=3.0, seed=2)),
        radix_driver.visit(prompt, hot, sample=1),
        radix_driver.visit(prompt, hot, member=1),
        radix_driver.visit(other, hot),
        radix_driver.visit(prompt, hot),
    ]
    radix_driver.write(visits, 10)
    first, *rest, again = [output(visit) for visit in visits]
    assert first == again
    for a, b in itertools.combinations([first, *rest], 2):
        assert a != b


def test_adjusted_logits_are_drawn_from(radix: Served, radix_driver: Driver) -> None:
    """Rows that the engine draws through its own path: rules come before the seeded draw."""
    logits = radix.model.logits(PROMPT)
    best = int(logits.argmax())
    rules = {"logit_bias": {best: -100.0}, "min_new_tokens": 1}
    visits = [
        radix_driver.visit(PROMPT, Sampling(1, temperature=1.0, seed=i, **rules))
        for i in range(300)
    ]
    tokens = []
    for visit in visits:
        radix_driver.admit(visit)
        tokens += radix_driver.step([(visit, visit.pending)]).tokens
        radix_driver.release(visit)
    wanted = limited(adjusted(logits, visits[0].sampling, PROMPT, [], EOS_IDS), Sampling(1))
    assert fits(tokens, wanted)
    assert not fits(tokens, limited(logits, Sampling(1)))
