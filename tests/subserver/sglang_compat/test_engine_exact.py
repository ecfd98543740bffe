"""Greedy tokens equal those of plain Hugging Face code, whatever the way they were fed."""

from __future__ import annotations

import random

import pytest

from tests.subserver.sglang_compat.conftest import Served
from tests.subserver.sglang_compat.driver import Driver, output
from tests.subserver.sglang_compat.tiny_models import MARGIN, TinyModel
from tokenrouter.subserver.engine import Visit

LENGTH = 24


def test_references_can_tell_right_from_wrong(served: Served) -> None:
    for prompt in served.model.prompts(8, seed=0):
        reference = served.model.reference(prompt)
        assert reference.margin >= MARGIN
        assert len(set(reference.tokens)) >= 8


def test_one_visit(served: Served, driver: Driver) -> None:
    for prompt in served.model.prompts(3, seed=1):
        visit = driver.visit(prompt)
        driver.write([visit], LENGTH)
        assert output(visit) == served.model.reference(prompt).tokens


def test_a_prompt_of_one_token(served: Served, driver: Driver) -> None:
    visit = driver.visit([17])
    driver.write([visit], 8)
    assert output(visit) == served.model.reference([17], 8).tokens


def test_many_visits_in_one_batch(served: Served, driver: Driver) -> None:
    prompts = served.model.prompts(8, seed=2)
    visits = [driver.visit(prompt) for prompt in prompts]
    driver.write(visits, LENGTH)
    assert [output(visit) for visit in visits] == references(served.model, prompts)


def test_visits_joining_and_leaving_a_running_batch(served: Served, driver: Driver) -> None:
    prompts = served.model.prompts(6, seed=3)
    visits = [driver.visit(prompt) for prompt in prompts]
    for i in range(1, len(visits) + 1):
        driver.write(visits[:i], 2)
    for i in range(len(visits)):
        driver.write(visits[i:], 2)
    for visit, prompt in zip(visits, prompts, strict=True):
        tokens = output(visit)
        assert tokens == served.model.reference(prompt).tokens[: len(tokens)]


def test_chunks_of_any_size(served: Served, driver: Driver) -> None:
    rng = random.Random(4)
    prompts = served.model.prompts(5, seed=4)
    visits = [driver.visit(prompt) for prompt in prompts]
    while any(len(output(visit)) < LENGTH for visit in visits):
        for visit in visits:
            driver.admit(visit)
        work = [(visit, rng.randint(1, visit.pending)) for visit in visits]
        write_sampled(driver, work)
    assert [output(visit)[:LENGTH] for visit in visits] == references(served.model, prompts)


def test_prompts_and_single_tokens_in_one_batch(served: Served, driver: Driver) -> None:
    old_prompt, *new_prompts = served.model.prompts(4, seed=5)
    old = driver.visit(old_prompt)
    driver.write([old], 3)
    for prompt in new_prompts:
        driver.write([old, driver.visit(prompt)], 4)
    assert output(old) == served.model.reference(old_prompt).tokens[: len(output(old))]
    for visit in driver.visits[1:]:
        assert (
            output(visit) == served.model.reference(visit.tokens[: visit.prompt_length]).tokens[:4]
        )


def test_a_prompt_computed_early_and_sampled_later(served: Served, driver: Driver) -> None:
    prompt, other_prompt = served.model.prompts(2, seed=6, longest=30)
    early, other = driver.visit(prompt), driver.visit(other_prompt)
    driver.step([(early, early.pending)])
    driver.write([other], 3)
    # Its logits are gone: the last token is fed again.
    driver.truncate(early, early.length - 1)
    driver.write([early, other], 5)
    assert output(early) == served.model.reference(prompt).tokens[:5]
    assert output(other) == served.model.reference(other_prompt).tokens[:8]


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_coming_back_after_k_tokens_of_others(served: Served, driver: Driver, k: int) -> None:
    prompts = served.model.prompts(3, seed=7)
    visits = [driver.visit(prompt) for prompt in prompts]
    wanted = references(served.model, prompts)
    for _ in range(3):
        driver.write(visits, 1)
        for visit, tokens in zip(visits, wanted, strict=True):
            # This member's own token is the first of the k that are new here.
            visit.tokens += tokens[len(output(visit)) :][: k - 1]
            assert visit.pending == k
    driver.write(visits, 1)
    assert [output(visit) for visit in visits] == [tokens[: 3 * k + 1] for tokens in wanted]


def test_own_token_dropped_for_that_of_another(served: Served, driver: Driver) -> None:
    [prompt] = served.model.prompts(1, seed=8)
    visit = driver.visit(prompt)
    driver.write([visit], 4)
    driver.step([(visit, 1)])
    context = [*visit.tokens, 33, 44]
    reference = served.model.reference(context, 4)
    assert reference.margin >= MARGIN
    visit.tokens += [33, 44]
    assert visit.pending == 2
    driver.write([visit], 4)
    assert output(visit)[-4:] == reference.tokens


@pytest.mark.parametrize("wrong", [1, 4])
def test_rolling_back(served: Served, driver: Driver, wrong: int) -> None:
    prompts = served.model.prompts(2, seed=9)
    visits = [driver.visit(prompt) for prompt in prompts]
    free = driver.engine.free_tokens()
    for _ in range(4):
        driver.write(visits, 2)
        good = [visit.length for visit in visits]
        for visit in visits:
            visit.tokens += [7] * wrong
        driver.step([(visit, visit.pending) for visit in visits])
        for visit, length in zip(visits, good, strict=True):
            driver.truncate(visit, length - 1)
            del visit.tokens[length:]
        assert driver.engine.free_tokens() == free - sum(visit.computed for visit in visits)
    driver.write(visits, 2)
    for visit, tokens in zip(visits, references(served.model, prompts), strict=True):
        assert output(visit) == tokens[:10]


def test_evicted_and_computed_again(served: Served, driver: Driver) -> None:
    prompts = served.model.prompts(3, seed=10)
    visits = [driver.visit(prompt) for prompt in prompts]
    wanted = references(served.model, prompts)
    for victim, tokens in [*zip(visits, wanted, strict=True)] * 2:
        driver.write(visits, 2)
        driver.release(victim)
        victim.tokens.append(tokens[len(output(victim))])
    driver.write(visits, 2)
    for visit, tokens in zip(visits, wanted, strict=True):
        assert output(visit) == tokens[: len(output(visit))]


@pytest.mark.parametrize("seed", range(4))
def test_any_history(served: Served, driver: Driver, seed: int) -> None:
    """Chunks, early prompts, tokens of others, wrong drafts and evictions, at random."""
    rng = random.Random(seed)
    prompts = served.model.prompts(6, seed=11)
    wanted = dict(enumerate(references(served.model, prompts)))
    visits = [driver.visit(prompt) for prompt in prompts]
    batches: set[bool] = set()
    while unfinished := [v for v in visits if len(output(v)) < LENGTH]:
        chosen = rng.sample(unfinished, rng.randint(1, len(unfinished)))
        for visit in chosen:
            driver.admit(visit)
            if not visit.pending:
                driver.truncate(visit, visit.length - 1)
        work = [(v, v.pending if rng.random() < 0.7 else rng.randint(1, v.pending)) for v in chosen]
        batches.add(all(n == 1 for _, n in work))
        write_sampled(driver, work, chance=0.8, rng=rng)
        visit = rng.choice(unfinished)
        left = wanted[visit.uid][len(output(visit)) :]
        event = rng.choice(["nothing", "others", "draft", "evict"])
        if event == "others":
            visit.tokens += left[: rng.randint(1, 5)]
        elif event == "draft" and visit.resident:
            length = visit.length
            visit.tokens += [rng.randrange(5, 300) for _ in range(3)]
            driver.step([(visit, visit.pending)])
            driver.truncate(visit, rng.randint(length // 2, length - 1))
            del visit.tokens[length:]
        elif event == "evict" and visit.resident:
            driver.release(visit)
    assert batches == {True, False}
    assert [output(visit)[:LENGTH] for visit in visits] == list(wanted.values())


def write_sampled(
    driver: Driver,
    work: list[tuple[Visit, int]],
    chance: float = 1.0,
    rng: random.Random | None = None,
) -> None:
    """One step; whoever has nothing left to feed appends its token (with a ``chance``)."""
    batch = driver.step(work)
    for (visit, _), token in zip(work, batch.tokens, strict=True):
        if not visit.pending and (rng is None or rng.random() < chance):
            visit.tokens.append(token)


def references(model: TinyModel, prompts: list[list[int]]) -> list[list[int]]:
    return [model.reference(prompt).tokens for prompt in prompts]
