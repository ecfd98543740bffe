"""Drawn tokens follow the distribution that their request asks for, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
import torch

from tests.subserver.sglang_compat.conftest import Served
from tests.subserver.sglang_compat.driver import GREEDY, Driver
from tokenrouter.ipc.messages import Sampling

DRAWS = 4000
ROWS = 40
PROMPT = list(range(100, 120))


def draws(driver: Driver, samplings: Sequence[Sampling], times: int) -> list[list[int]]:
    """``times`` tokens for each of ``samplings``, after one prompt, all rows in one batch."""
    torch.manual_seed(0)
    visits = [driver.visit(PROMPT, sampling) for sampling in samplings]
    drawn: list[list[int]] = [[] for _ in visits]
    for visit in visits:
        driver.admit(visit)
    if begin := [(visit, visit.pending - 1) for visit in visits if visit.pending > 1]:
        driver.step(begin)
    for _ in range(times):
        batch = driver.step([(visit, 1) for visit in visits])
        for row, (visit, token) in enumerate(zip(visits, batch.tokens, strict=True)):
            drawn[row].append(token)
            driver.truncate(visit, len(PROMPT) - 1)
    return drawn


def chi_square(tokens: Sequence[int], probabilities: torch.Tensor) -> tuple[float, int]:
    """Pearson's statistic and its degrees of freedom; cells pooled to 10 or more expected."""
    counts, n = Counter(tokens), len(tokens)
    statistic, cells, pooled, pooled_expected = 0.0, 0, 0, 0.0
    for token, probability in enumerate(probabilities.tolist()):
        expected = n * probability
        if expected >= 10:
            statistic += (counts[token] - expected) ** 2 / expected
            cells += 1
        else:
            pooled += counts[token]
            pooled_expected += expected
    if pooled_expected > 0:
        statistic += (pooled - pooled_expected) ** 2 / pooled_expected
        cells += 1
    return statistic, cells - 1


def fits(tokens: Sequence[int], probabilities: torch.Tensor) -> bool:
    """Within five standard deviations of what chance gives."""
    statistic, freedom = chi_square(tokens, probabilities)
    return statistic < freedom + 5 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature(served: Served, driver: Driver, temperature: float) -> None:
    sampling = Sampling(max_new_tokens=1, temperature=temperature)
    rows = draws(driver, [sampling] * ROWS, DRAWS // ROWS)
    tokens = [token for row in rows for token in row]
    logits = served.model.logits(PROMPT)
    assert fits(tokens, torch.softmax(logits / temperature, -1))
    assert not fits(tokens, torch.softmax(logits / (temperature * 1.2), -1))


def test_each_row_has_its_own_limits(served: Served, driver: Driver) -> None:
    samplings = [
        Sampling(max_new_tokens=1, top_k=3),
        Sampling(max_new_tokens=1, top_p=0.3),
        Sampling(max_new_tokens=1, min_p=0.5),
        GREEDY,
        Sampling(max_new_tokens=1),
    ]
    rows = [set(row) for row in draws(driver, samplings, 300)]
    probabilities = torch.softmax(served.model.logits(PROMPT), -1)
    ordered, order = probabilities.sort(descending=True)
    nucleus = int((ordered.cumsum(-1) - ordered <= 0.3).sum())
    likely = int((ordered >= 0.5 * ordered[0]).sum())
    assert rows[0] == set(order[:3].tolist())
    assert rows[1] == set(order[:nucleus].tolist())
    assert rows[2] == set(order[:likely].tolist())
    assert rows[3] == {int(order[0])}
    assert len(rows[4]) > 30


def test_greedy_rows_beside_sampled_ones(served: Served, driver: Driver) -> None:
    prompts = served.model.prompts(3, seed=40)
    greedy = [driver.visit(prompt) for prompt in prompts]
    hot = [driver.visit(prompt, Sampling(64, temperature=2.0)) for prompt in prompts]
    driver.write([visit for pair in zip(greedy, hot, strict=True) for visit in pair], 24)
    for visit, prompt in zip(greedy, prompts, strict=True):
        assert visit.tokens[len(prompt) :] == served.model.reference(prompt).tokens
    assert [visit.tokens for visit in hot] != [visit.tokens for visit in greedy]


def test_only_mixed_batches_mark_their_greedy_rows() -> None:
    from tokenrouter.subserver.sglang_compat import sampling

    hot = sampling.draw_of(Sampling(1, temperature=1.0))
    mixed = sampling.row_sampling((sampling.GREEDY, hot), 4, "cpu")
    assert mixed.greedy is not None and mixed.greedy.tolist() == [True, False]
    assert not mixed.info.is_all_greedy
    greedy = sampling.row_sampling((sampling.GREEDY, sampling.GREEDY), 4, "cpu")
    assert greedy.greedy is None and greedy.info.is_all_greedy
    drawn = sampling.row_sampling((hot, hot), 4, "cpu")
    assert drawn.greedy is None and not drawn.info.is_all_greedy


@pytest.mark.parametrize(
    "sampling", [Sampling(1, temperature=0.0), Sampling(1, top_k=1), Sampling(1, 0.7, top_k=1)]
)
def test_every_form_of_greedy_is_one(sampling: Sampling) -> None:
    from tokenrouter.subserver.sglang_compat.sampling import GREEDY as NORMAL
    from tokenrouter.subserver.sglang_compat.sampling import draw_of

    assert draw_of(sampling) == NORMAL


def test_the_same_seed_draws_the_same_tokens(served: Served, driver: Driver) -> None:
    sampling = Sampling(max_new_tokens=1, temperature=1.5)
    assert draws(driver, [sampling] * 4, 10) == draws(driver, [sampling] * 4, 10)
