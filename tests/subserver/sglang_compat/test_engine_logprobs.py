"""Log probabilities of drawn tokens and of the likeliest: as written plainly, row by row."""

from __future__ import annotations

import pytest
import torch

from tests.plain_sampling import adjusted
from tests.subserver.sglang_compat.conftest import Served
from tests.subserver.sglang_compat.driver import EOS_IDS, Driver, output
from tokenrouter.ipc.messages import Logprob, Sampling

TOLERANCE = 1e-4
ASKING = [
    Sampling(64, temperature=0.0, logprobs=0),
    Sampling(64, temperature=0.0, logprobs=5, frequency_penalty=0.5, min_new_tokens=3),
    Sampling(64, temperature=0.6, logprobs=2, top_p=0.7),
    Sampling(64, temperature=1.7, logprobs=3, seed=4, repetition_penalty=1.4),
]


def test_of_every_token_that_is_written(served: Served, driver: Driver) -> None:
    torch.manual_seed(3)
    prompts = served.model.prompts(len(ASKING) + 2, seed=60)
    visits = [driver.visit(*each) for each in zip(prompts, [*ASKING, *ASKING[:2]], strict=True)]
    silent = driver.visit(prompts[0], Sampling(64, temperature=1.0))
    for visit in (*visits, silent):
        driver.admit(visit)
    for _ in range(8):
        rows = [silent, *visits]
        batch = driver.step([(visit, visit.pending) for visit in rows])
        assert sorted(batch.logprobs) == list(range(1, len(rows)))
        for row, visit in enumerate(rows[1:], 1):
            check(served, visit.tokens, visit.prompt_length, visit.sampling, batch.tokens[row],
                  batch.logprobs[row])  # fmt: skip
        for visit, token in zip(rows, batch.tokens, strict=True):
            visit.tokens.append(token)
    assert len({tuple(output(visit)) for visit in visits}) > 4


def check(
    served: Served, tokens: list[int], start: int, sampling: Sampling, token: int, given: Logprob
) -> None:
    logits = served.model.logits(tokens)
    logits = adjusted(logits, sampling, tokens[:start], tokens[start:], EOS_IDS)
    wanted = torch.log_softmax(logits / (sampling.temperature or 1.0), dim=-1)
    assert given.logprob == pytest.approx(float(wanted[token]), abs=TOLERANCE)
    values, ids = wanted.topk(sampling.logprobs or 1)
    assert len(given.top) == sampling.logprobs
    for (identity, value), best in zip(given.top, values.tolist(), strict=False):
        assert value == pytest.approx(best, abs=TOLERANCE)
        assert value == pytest.approx(float(wanted[identity]), abs=TOLERANCE)
    if float(values[0] - wanted.topk(2).values[1]) > TOLERANCE and given.top:
        assert given.top[0][0] == int(ids[0])


def test_what_is_impossible_has_a_number(radix: Served, radix_driver: Driver) -> None:
    wanted = Sampling(64, temperature=0.0, logprobs=320, min_new_tokens=1)
    visit = radix_driver.visit([5, 6, 7], wanted)
    radix_driver.admit(visit)
    batch = radix_driver.step([(visit, visit.pending)])
    values = dict(batch.logprobs[0].top)
    assert len(values) == 320
    assert values[EOS_IDS[0]] == values[EOS_IDS[1]] == torch.finfo(torch.float32).min


def test_more_alternatives_than_there_are_tokens(radix: Served, radix_driver: Driver) -> None:
    visit = radix_driver.visit([5, 6, 7], Sampling(64, temperature=0.0, logprobs=10_000))
    radix_driver.admit(visit)
    batch = radix_driver.step([(visit, visit.pending)])
    assert len(batch.logprobs[0].top) == 320
