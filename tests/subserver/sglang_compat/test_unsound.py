"""A model that computes what are no numbers for one row of a batch fails that request alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from tests.subserver.sglang_compat.conftest import Served
from tests.subserver.sglang_compat.driver import GREEDY, Driver, output
from tokenrouter.errors import ModelError
from tokenrouter.ipc.messages import Sampling
from tokenrouter.schedulers.base import Proposal
from tokenrouter.schedulers.signals import Acceptance, Aleatoric, Checks, Entropy, Proposals, Signal
from tokenrouter.subserver.engine import StepBatch, Visit
from tokenrouter.subserver.sglang_compat.unsound import LARGEST, failures, found, repair

NAN, INF = float("nan"), float("inf")
PROMPTS = ([5, 6, 7, 8], [9, 10, 11], [12, 13, 14, 15, 16])
BROKEN = 1
"""The row of `PROMPTS` that the model is broken for."""
SAMPLINGS = {
    "greedy": GREEDY,
    "drawn": Sampling(64, temperature=1.0),
    "limited": Sampling(64, temperature=0.7, top_p=0.9, top_k=20, min_p=0.01),
    "seeded": Sampling(64, temperature=1.0, top_p=0.9, seed=3),
    "told": Sampling(64, temperature=1.0, seed=4, logprobs=3, frequency_penalty=0.5),
    "greedy, told": Sampling(64, temperature=0.0, logprobs=3),
}
TOO_EARLY = 7
Break = Callable[[Sequence[int], float], None]
Change = Callable[[torch.Tensor], None]


@pytest.fixture
def changed(radix: Served, monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], None]:
    """Change the logits of the steps that come, in place."""
    worker = radix.engine.scheduler.tp_worker
    compute = worker.forward_batch_generation

    def change_logits(change: Change) -> None:
        def forward(batch: Any, **more: Any) -> Any:
            output, *rest = compute(batch, **more)
            change(output.next_token_logits)
            return (output, *rest)

        monkeypatch.setattr(worker, "forward_batch_generation", forward)

    return change_logits


@pytest.fixture
def broken(changed: Callable[[Change], None]) -> Break:
    """Break the logits ``rows`` of the steps that come."""

    def break_rows(rows: Sequence[int], value: float) -> None:
        def change(logits: torch.Tensor) -> None:
            if value == INF:
                logits[list(rows), 7] = INF
            else:
                logits[list(rows)] = value

        changed(change)

    return break_rows


@pytest.fixture
def mended(radix: Served, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The model is itself again."""
    worker = radix.engine.scheduler.tp_worker
    compute = worker.forward_batch_generation
    return lambda: monkeypatch.setattr(worker, "forward_batch_generation", compute)


def step(driver: Driver, visits: Sequence[Visit], *signals: Signal) -> StepBatch:
    """All of them to their ends, in one batch."""
    for visit in visits:
        driver.admit(visit)
    return driver.step([(visit, visit.pending) for visit in visits], signals)


@pytest.mark.parametrize("value", [NAN, INF, -INF, 1e38])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_one_row_fails_and_the_others_are_what_they_would_be(
    radix_driver: Driver, mended: Callable[[], None], broken: Break, name: str, value: float
) -> None:
    driver, sampling = radix_driver, SAMPLINGS[name]
    visits = [driver.visit(prompt, sampling) for prompt in PROMPTS]
    torch.manual_seed(7)
    broken([BROKEN], value)
    batch = step(driver, visits, Entropy(), Aleatoric())
    assert list(batch.failed) == [BROKEN]
    assert isinstance(batch.failed[BROKEN], ModelError)
    assert "NaN or infinite" in str(batch.failed[BROKEN])
    driver.release_all()
    mended()
    torch.manual_seed(7)
    again = [driver.visit(prompt, sampling) for prompt in PROMPTS]
    sound = step(driver, again, Entropy())
    assert not sound.failed
    if sampling.seed is not None or name.startswith("greedy"):
        assert [sound.tokens[row] for row in (0, 2)] == [batch.tokens[row] for row in (0, 2)]
        assert [sound.logprobs.get(row) for row in (0, 2)] == [
            batch.logprobs.get(row) for row in (0, 2)
        ]


def test_a_batch_of_all_kinds(radix_driver: Driver, broken: Break) -> None:
    driver = radix_driver
    visits = [driver.visit([20, 21, 22 + i], each) for i, each in enumerate(SAMPLINGS.values())]
    broken(range(len(visits)), NAN)
    batch = step(driver, visits)
    assert set(batch.failed) == set(range(len(visits)))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_in_which_all_that_rules_allow_is_impossible(
    radix_driver: Driver, changed: Callable[[Change], None], temperature: float
) -> None:
    driver = radix_driver
    rules = Sampling(64, temperature, stop_token_ids=(TOO_EARLY,), min_new_tokens=5)
    visits = [driver.visit(PROMPTS[0], rules), driver.visit(PROMPTS[1], Sampling(64, temperature))]

    def change(logits: torch.Tensor) -> None:
        logits[0] = -INF
        logits[0, TOO_EARLY] = 1.0

    changed(change)
    assert list(step(driver, visits).failed) == [0]


@pytest.mark.parametrize("other", [0.0, 1.0])
def test_a_row_in_which_rules_forbid_what_is_no_number_is_drawn_in_any_company(
    radix_driver: Driver, changed: Callable[[Change], None], other: float
) -> None:
    driver = radix_driver
    rules = Sampling(64, 0.0, stop_token_ids=(TOO_EARLY,), min_new_tokens=5)
    visits = [driver.visit(PROMPTS[0], rules), driver.visit(PROMPTS[1], Sampling(64, other))]

    def change(logits: torch.Tensor) -> None:
        logits[0, 9] = 1000.0
        logits[0, TOO_EARLY] = NAN

    changed(change)
    batch = step(driver, visits)
    assert (batch.failed, batch.tokens[0]) == ({}, 9)


@pytest.mark.parametrize("seed", [None, 5])
def test_rows_that_draft(radix_driver: Driver, broken: Break, seed: int | None) -> None:
    driver = radix_driver
    visits = [driver.visit(prompt, Sampling(64, 1.0, seed=seed)) for prompt in PROMPTS]
    for visit in visits:
        visit.signals = (Proposals(4),)
    broken([BROKEN], NAN)
    batch = step(driver, visits, Proposals(4))
    assert list(batch.failed) == [BROKEN]
    assert batch.tokens[0] in batch.signals[Proposals(4)][0].ids


@pytest.mark.parametrize("kind", [None, "exact", "chow"])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(64, 1.0, seed=6)])
def test_drafts_whose_check_is_broken_fail_their_request(
    radix_driver: Driver, monkeypatch: pytest.MonkeyPatch, sampling: Sampling, kind: Any
) -> None:
    driver = radix_driver
    checking, other = (driver.visit(prompt, sampling) for prompt in PROMPTS[:2])
    step(driver, (checking, other))
    checking.tokens += [30, 31, 32]
    other.tokens.append(33)
    checking.check, checking.unchecked = Checks(Acceptance(kind, 0.2) if kind else None), 2
    law = Proposal([30, 31, 32], [0.5, 0.25, 0.25], [0.5, 0.25, 0.25], 0.5)
    checking.request = type("Asked", (), {"proposals": [law, law], "drafts": 2})()
    sound = driver.engine._logits_after
    broken = torch.tensor([[NAN], [0.0]])
    monkeypatch.setattr(driver.engine, "_logits_after", lambda *given: sound(*given) + broken)
    batch = driver.step([(checking, checking.pending), (other, 1)])
    assert list(batch.failed) == [0]


def test_what_a_broken_row_left_is_not_given_to_others(
    radix_driver: Driver, mended: Callable[[], None], broken: Break
) -> None:
    """As the loop does with the KV of such a row."""
    driver, prompt = radix_driver, [40, 41, 42, 43, 44, 45]
    plain = driver.visit(prompt)
    driver.write([plain], 4)
    driver.release(plain)
    visit = driver.visit([*prompt, 46])
    driver.admit(visit)
    assert visit.computed, "some of it is shared"
    broken([0], NAN)
    assert driver.step([(visit, visit.pending)]).failed
    driver.truncate(visit, 0)
    mended()
    driver.release(visit)
    again = driver.visit(prompt)
    driver.write([again], 4)
    assert output(again) == output(plain)


def test_a_row_is_unsound_by_its_largest_logit() -> None:
    rows = torch.tensor(
        [[1.0, 2.0, -INF], [1.0, NAN, 2.0], [INF, 0.0, 0.0], [-INF] * 3, [2 * LARGEST, 0.0, 0.0]]
    )
    work: Any = [(row, 1) for row in "abcde"]
    for synchronous in (True, False):
        logits = rows.clone()
        unsound = [found(rows, rows.argmax(dim=-1), synchronous), repair(logits, synchronous)]
        assert [set(failures(work, [], each)) for each in unsound] == [{1, 2, 3, 4}] * 2
        assert torch.equal(logits[0], rows[0])
        assert torch.equal(logits[1:], torch.zeros(4, 3))
