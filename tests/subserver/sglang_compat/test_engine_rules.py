"""Penalties, bias and minimum length: tokens equal those of the rules written plainly."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.plain_sampling import adjusted
from tests.subserver.sglang_compat.conftest import Served
from tests.subserver.sglang_compat.driver import EOS_IDS, Driver, output
from tests.subserver.sglang_compat.tiny_models import MARGIN, TinyModel
from tokenrouter.ipc.messages import Sampling
from tokenrouter.subserver.engine import Visit
from tokenrouter.subserver.sglang_compat import penalties

LENGTH = 24


def rules(**more: object) -> Sampling:
    return Sampling(64, temperature=0.0, **more)


RULES = {
    "frequency": rules(frequency_penalty=1.5),
    "negative": rules(frequency_penalty=-0.4),
    "presence": rules(presence_penalty=2.0),
    "repetition": rules(repetition_penalty=1.6),
    "encouraged": rules(repetition_penalty=0.7),
    "bias": rules(logit_bias={9: 2.5, 40: 3.0, 41: -100.0, 100: 2.0}),
    "minimum": rules(
        min_new_tokens=10, logit_bias={1: 12.0, 7: 11.0, 50: 9.0}, stop_token_ids=(50,)
    ),
    "all": rules(
        frequency_penalty=0.3, presence_penalty=-0.2, repetition_penalty=1.3,
        logit_bias={1: 30.0, 60: 1.0}, min_new_tokens=12,
    ),
}  # fmt: skip


KNOWN: dict[tuple[int, int, tuple[int, ...]], list[int] | None] = {}


def reference(model: TinyModel, prompt: list[int], sampling: Sampling) -> list[int] | None:
    """Tokens by the plain rules; None where float noise could decide one."""
    key = (id(model), id(sampling), tuple(prompt))
    if key not in KNOWN:
        KNOWN[key] = by_plain_rules(model, prompt, sampling)
    return KNOWN[key]


def by_plain_rules(model: TinyModel, prompt: list[int], sampling: Sampling) -> list[int] | None:
    tokens = list(prompt)
    for _ in range(LENGTH):
        written = tokens[len(prompt) :]
        logits = adjusted(model.logits(tokens), sampling, prompt, written, EOS_IDS)
        best = logits.topk(2)
        if best.values[0] - best.values[1] < MARGIN:
            return None
        tokens.append(int(best.indices[0]))
    return tokens[len(prompt) :]


def cases(model: TinyModel, seed: int, each: int = 2) -> Iterator[tuple[list[int], Sampling]]:
    """For each kind of rules, ``each`` prompts that they decide clearly."""
    rng = random.Random(seed)
    for sampling in RULES.values():
        found = 0
        while found < each:
            prompt = [rng.randrange(5, 320) for _ in range(rng.randint(2, 40))]
            if reference(model, prompt, sampling) is not None:
                found += 1
                yield prompt, sampling


def differs(model: TinyModel, prompt: list[int], sampling: Sampling) -> bool:
    return reference(model, prompt, sampling) != model.reference(prompt, LENGTH).tokens


def assert_right(model: TinyModel, visits: list[Visit]) -> None:
    for visit in visits:
        prompt = visit.tokens[: visit.prompt_length]
        wanted = reference(model, prompt, visit.sampling)
        assert output(visit)[:LENGTH] == wanted, visit.sampling


def test_every_kind_of_rules_changes_something(radix: Served) -> None:
    prompts = list(cases(radix.model, seed=1))
    for sampling in RULES.values():
        mine = [prompt for prompt, rule in prompts if rule is sampling]
        assert any(differs(radix.model, prompt, sampling) for prompt in mine), sampling


def test_all_rules_in_one_batch_beside_plain_rows(served: Served, driver: Driver) -> None:
    visits = [driver.visit(*case) for case in cases(served.model, seed=1)]
    plain = [driver.visit(prompt) for prompt in served.model.prompts(3, seed=50)]
    driver.write([*visits, *plain], LENGTH)
    assert_right(served.model, visits)
    for visit in plain:
        prompt = visit.tokens[: visit.prompt_length]
        assert output(visit) == served.model.reference(prompt).tokens


def history(model: TinyModel, driver: Driver, seed: int) -> list[Visit]:
    """Chunks, tokens of others, wrong drafts that are taken back, and evictions, at random."""
    rng = random.Random(seed)
    visits = [driver.visit(*case) for case in cases(model, seed, each=1)]
    wanted = {
        v.uid: reference(model, v.tokens[: v.prompt_length], v.sampling) or [] for v in visits
    }
    while unfinished := [v for v in visits if len(output(v)) < LENGTH]:
        chosen = rng.sample(unfinished, rng.randint(1, len(unfinished)))
        for visit in chosen:
            driver.admit(visit)
            if not visit.pending:
                driver.truncate(visit, visit.length - 1)
        work = [(v, v.pending if rng.random() < 0.7 else rng.randint(1, v.pending)) for v in chosen]
        batch = driver.step(work)
        for (visit, _), token in zip(work, batch.tokens, strict=True):
            if not visit.pending and rng.random() < 0.8:
                visit.tokens.append(token)
        visit = rng.choice(unfinished)
        event = rng.choice(["nothing", "others", "draft", "replaced", "check", "evict"])
        if event == "check":
            right = wanted[visit.uid][len(output(visit)) :][: rng.randint(0, 4)]
            driver.verify(visit, [*right, rng.randrange(5, 300)])
        elif event == "others":
            visit.tokens += wanted[visit.uid][len(output(visit)) :][: rng.randint(1, 5)]
        elif event in ("draft", "replaced") and visit.resident:
            # Another member's draft is known here, written after, and taken back.
            length = visit.length
            visit.tokens += [rng.randrange(5, 300) for _ in range(rng.randint(1, 4))]
            driver.step([(visit, visit.pending)])
            back = rng.randint(max(length - 2, visit.prompt_length), length)
            driver.cut(visit, back)
            if event == "replaced":
                visit.tokens += wanted[visit.uid][len(output(visit)) :][: rng.randint(0, 3)]
        elif event == "evict" and visit.resident:
            driver.release(visit)
    return visits


def test_any_history(served: Served, driver: Driver) -> None:
    assert_right(served.model, history(served.model, driver, seed=0))


@pytest.mark.parametrize("forgotten", ["kept", "fresh", "prompt"])
def test_one_token_not_accounted_for_is_noticed(
    radix: Served, radix_driver: Driver, monkeypatch: pytest.MonkeyPatch, forgotten: str
) -> None:
    """Twins that forget to take a token back, to count one now and then, or part of the prompt."""
    stock = penalties.Penalties._count
    counted = 0

    def forgetful(self: penalties.Penalties, tokens: list[int], change: int) -> None:
        nonlocal counted
        counted += 1
        skip = (forgotten == "kept" and change < 0) or (
            forgotten == "fresh" and change > 0 and counted % 20 == 0
        )
        stock(self, tokens[1:] if skip else tokens, change)

    monkeypatch.setattr(penalties.Penalties, "_count", forgetful)
    if forgotten == "prompt":
        unique = penalties.numpy.unique
        monkeypatch.setattr(penalties.numpy, "unique", lambda tokens: unique(tokens)[::2])
    visits = history(radix.model, radix_driver, seed=0)
    with pytest.raises(AssertionError):
        assert_right(radix.model, visits)


def test_ids_beyond_the_vocabulary_change_nothing(served: Served, driver: Driver) -> None:
    far = 10**6
    wild = Sampling(
        64, temperature=0.0, repetition_penalty=1.0, frequency_penalty=1e-9,
        logit_bias={far: 5.0}, stop_token_ids=(far,), min_new_tokens=1,
    )  # fmt: skip
    [prompt] = served.model.prompts(1, seed=51)
    visit = driver.visit(prompt, wild)
    driver.write([visit], 8)
    assert output(visit) == served.model.reference(prompt).tokens[:8]


@pytest.mark.parametrize("temperature", [0.0, 2e-6, 1.0, 1e30])
@pytest.mark.parametrize("seed", [None, 3])
def test_no_number_is_too_large(
    radix: Served, radix_driver: Driver, temperature: float, seed: int | None
) -> None:
    """A row that is not a distribution would end the member."""
    most = 3.4e38
    wild = [
        {"logit_bias": dict.fromkeys(range(320), most)},
        {"logit_bias": dict.fromkeys(range(320), -most)},
        {"logit_bias": {40: most, 41: -most}},
        {"logit_bias": {40: 1e300}},
        {"repetition_penalty": 1e-300, "frequency_penalty": 2.0},
        {"repetition_penalty": 2.0, "presence_penalty": -2.0, "min_p": 1.0, "top_p": 1e-300},
    ]
    [prompt] = radix.model.prompts(1, seed=52)
    visits = [
        radix_driver.visit(prompt, Sampling(9, temperature, seed=seed, logprobs=2, **each))
        for each in wild
    ]
    radix_driver.write(visits, 4)
    assert output(visits[3])[0] == 40 or temperature == 1e30
    assert all(0 <= token < 320 for visit in visits for token in output(visit))
