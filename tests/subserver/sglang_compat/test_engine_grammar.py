"""Grammars: tokens equal those of the same rules written plainly, whatever happened between."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from tests.integration.models import build_trio
from tests.plain_sampling import adjusted
from tests.subserver.sglang_compat.conftest import Build, Served
from tests.subserver.sglang_compat.driver import EOS_IDS, Driver, output
from tests.subserver.sglang_compat.tiny_models import MARGIN, TinyModel
from tokenrouter.errors import RequestError
from tokenrouter.ipc.messages import Grammar, Sampling
from tokenrouter.subserver.engine import Visit
from tokenrouter.subserver.sglang_compat import grammar_process, matching

PATTERN = "([a-c]{2}[0-9]){4,8}"
LETTERS, DIGITS = set(b"abc"), set(b"0123456789")
PENALTY = 0.4
"""Of frequency: without it, random weights would write one letter for ever."""


def allowed(written: Sequence[int]) -> set[int]:
    """Ids that `PATTERN` allows next, by hand."""
    i = len(written)
    ids = set(EOS_IDS) if i % 3 == 0 and i >= 12 else set()
    if i < 24:
        ids |= DIGITS if i % 3 == 2 else LETTERS
    return ids


def asks(kind: str = "regex", text: str = PATTERN, **more: object) -> Sampling:
    rules = {"temperature": 0.0, "frequency_penalty": PENALTY, **more}
    return Sampling(64, grammar=Grammar(kind, text), **rules)


@pytest.fixture(scope="session")
def bytes_served(tmp_path_factory: pytest.TempPathFactory, build: Build) -> Served:
    """A Llama with random weights over bytes."""
    path: Path = build_trio(tmp_path_factory.mktemp("bytes"))["middle"]
    plain = LlamaForCausalLM.from_pretrained(path).float().eval()
    return Served(TinyModel(path, plain), build(path, max_total_tokens=2000))


@pytest.fixture
def driver(bytes_served: Served) -> Iterator[Driver]:
    driver = Driver(bytes_served.engine)
    yield driver
    driver.release_all()
    bytes_served.engine.check_pools()


def ready(driver: Driver, visit: Visit) -> Visit:
    """``visit`` once its grammar is compiled."""
    woken = threading.Event()
    if not driver.engine.prepare(visit, woken.set):
        assert woken.wait(20)
        assert driver.engine.prepare(visit, woken.set)
    return visit


def reference(
    model: TinyModel, prompt: list[int], sampling: Sampling, think: int = -1
) -> list[int]:
    """Tokens by the plain rules up to an end; empty where float noise could decide one."""
    tokens = list(prompt)
    while not set(tokens[len(prompt) :]) & set(EOS_IDS):
        written = tokens[len(prompt) :]
        logits = adjusted(model.logits(tokens), sampling, prompt, written, EOS_IDS)
        if think in written or think < 0:
            bound = written[written.index(think) + 1 :] if think >= 0 else written
            logits[[i for i in range(len(logits)) if i not in allowed(bound)]] = -torch.inf
        best = logits.topk(2)
        if best.values[0] - best.values[1] < MARGIN or len(written) > 60:
            return []
        tokens.append(int(best.indices[0]))
    return tokens[len(prompt) :]


def cases(model: TinyModel, count: int, seed: int) -> dict[int, tuple[list[int], list[int]]]:
    rng, found = random.Random(seed), {}
    while len(found) < count:
        prompt = [rng.randrange(32, 127) for _ in range(rng.randint(2, 30))]
        if wanted := reference(model, prompt, asks()):
            found[len(found)] = prompt, wanted
    return found


def history(model: TinyModel, driver: Driver, seed: int) -> list[tuple[list[int], list[int]]]:
    """What was written and what should have been, after chunks, cuts, evictions and others."""
    rng = random.Random(seed)
    wanted = {}
    visits = []
    for prompt, tokens in cases(model, 5, seed).values():
        visits.append(ready(driver, driver.visit(prompt, asks())))
        wanted[visits[-1].uid] = tokens
    while unfinished := [v for v in visits if len(output(v)) < len(wanted[v.uid])]:
        chosen = rng.sample(unfinished, rng.randint(1, len(unfinished)))
        for visit in chosen:
            driver.admit(visit)
            if not visit.pending:
                driver.truncate(visit, visit.length - 1)
        work = [(v, v.pending if rng.random() < 0.7 else rng.randint(1, v.pending)) for v in chosen]
        batch = driver.step(work)
        assert not batch.failed
        for (visit, _), token in zip(work, batch.tokens, strict=True):
            if not visit.pending and rng.random() < 0.8:
                visit.tokens.append(token)
        visit = rng.choice(unfinished)
        event = rng.choice(["nothing", "others", "draft", "check", "evict"])
        left = wanted[visit.uid][len(output(visit)) :]
        if event == "others":
            visit.tokens += left[: rng.randint(1, 4)]
        elif event == "check" and len(left) > 1:
            drafts = left[: rng.randint(0, min(4, len(left) - 1))]
            options = allowed(output(visit) + drafts) - set(EOS_IDS)
            assert not driver.verify(visit, drafts + rng.sample(sorted(options), 1)).failed
        elif event == "draft" and visit.resident:
            length = visit.length
            for _ in range(rng.randint(1, 4)):
                options = allowed(output(visit)) - set(EOS_IDS)
                visit.tokens += rng.sample(sorted(options), bool(options))
            if visit.pending:
                assert not driver.step([(visit, visit.pending)]).failed
            driver.cut(visit, rng.randint(max(length - 2, visit.prompt_length), length))
        elif event == "evict" and visit.resident:
            driver.release(visit)
    return [(output(v)[: len(wanted[v.uid])], wanted[v.uid]) for v in visits]


@pytest.mark.parametrize("seed", range(2))
def test_any_history(bytes_served: Served, driver: Driver, seed: int) -> None:
    for written, wanted in history(bytes_served.model, driver, seed):
        assert written == wanted
        assert len(set(wanted)) > 4


@pytest.mark.parametrize("lost", ["_accept", "_follow"])
def test_a_token_that_is_not_accounted_for_is_noticed(
    bytes_served: Served, driver: Driver, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    stock = getattr(matching.Matching, lost)
    calls = 0

    def forgetful(self: matching.Matching, *arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % 9:
            stock(self, *arguments)
        elif lost == "_accept":
            stock(self, arguments[0][1:])

    monkeypatch.setattr(matching.Matching, lost, forgetful)
    with pytest.raises(AssertionError):
        assert all(a == b for a, b in history(bytes_served.model, driver, seed=0))


def test_beside_rows_without_a_grammar(bytes_served: Served, driver: Driver) -> None:
    (prompt, wanted), *_ = cases(bytes_served.model, 1, seed=3).values()
    plain, _ = driver.visit(prompt), driver.visit(prompt)
    bound = ready(driver, driver.visit(prompt, asks()))
    hot = ready(driver, driver.visit(prompt, asks(temperature=2.0, seed=5)))
    driver.write([plain, bound, hot], 12)
    assert output(bound) == wanted[:12]
    assert output(plain) == bytes_served.model.reference(prompt, 12).tokens
    for i, token in enumerate(output(hot)):
        assert token in allowed(output(hot)[:i])


def test_an_end_that_the_grammar_demands_comes_before_the_minimum(driver: Driver) -> None:
    visit = ready(driver, driver.visit([65, 66], asks(text="ab?", min_new_tokens=9)))
    driver.write([visit], 3)
    first, second, end = output(visit)
    assert (first, second) == (97, 98), "as long as there is a choice, no end"
    assert end in EOS_IDS
    driver.write([visit], 2)  # until its home closes it, nothing binds it


def test_reasoning_comes_before_the_grammar(bytes_served: Served, driver: Driver) -> None:
    engine = bytes_served.engine
    engine._compiler = None
    engine._think_end = (ord("#"),)
    try:
        sampling = asks(logit_bias={ord("#"): 5.0})
        rng = random.Random(1)
        while True:
            prompt = [rng.randrange(64, 127) for _ in range(12)]
            wanted = reference(bytes_served.model, prompt, sampling, think=ord("#"))
            if ord("#") in wanted[2:]:
                break
        visit = ready(driver, driver.visit(prompt, sampling))
        driver.write([visit], 4)
        driver.cut(visit, visit.length - 3)
        driver.write([visit], len(wanted) - 1)
        assert output(visit) == wanted
        closed = ready(driver, driver.visit([*prompt, ord("#"), 10], asks()))
        driver.write([closed], 2)
        assert output(closed)[0] in LETTERS
    finally:
        engine._compiler, engine._think_end = None, ()


def test_the_end_of_reasoning_may_be_several_tokens(bytes_served: Served, driver: Driver) -> None:
    engine = bytes_served.engine
    engine.use_reasoning_parser("qwen3")
    engine._compiler = None
    assert bytes(engine._think_end) == b"</think>"
    try:
        bias = dict.fromkeys(b"xyz", 50.0)  # which the grammar forbids
        visit = ready(driver, driver.visit([65, 66], asks(text="[ab]{9}", logit_bias=bias)))
        driver.write([visit], 3)
        visit.tokens += b"</think>"
        driver.write([visit], 3)
        driver.cut(visit, visit.length - 5)
        driver.write([visit], 2)
        visit.tokens += b"</think>"
        driver.write([visit], 2)
        text = bytes(output(visit)).decode()
        assert re.fullmatch("[xyz]{3}</thin[xyz]{2}</think>[ab]{2}", text), text
        closed = ready(driver, driver.visit([*b"A<think></think>", 10, 10], visit.sampling))
        driver.write([closed], 2)
        assert set(output(closed)) <= set(b"ab")
    finally:
        engine._compiler, engine._think_end = None, ()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("regex", ""), ("regex", "[a"), ("regex", "\0"),
        ("json_schema", ""), ("json_schema", '{"type": 3}'), ("json_schema", "[1]"),
        ("json_schema", '{"type":"array","items":' * 20_000),
        ("ebnf", "nonsense"), ("structural_tag", "{}"), ("structural_tag", "["),
    ],
)  # fmt: skip
def test_what_is_no_grammar_is_refused(driver: Driver, kind: str, text: str) -> None:
    with pytest.raises(RequestError, match=f"^{kind}: ") as caught:
        ready(driver, driver.visit([65], asks(kind, text)))
    assert "/project/" not in str(caught.value)
    with pytest.raises(RequestError, match=f"^{kind}: "):
        driver.engine.prepare(driver.visit([65], asks(kind, text)), no_wake)


def no_wake() -> None:
    raise AssertionError("what is known needs no waiting")


def test_every_kind_of_grammar(driver: Driver) -> None:
    tag = '{"structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}], "triggers": ["<f"]}'
    grammars = [
        ("json_schema", '{"enum": ["yes", "no"]}'), ("json_schema", "$$ANY$$"),
        ("ebnf", 'root ::= "yes" | "no"'), ("regex", "yes|no"), ("structural_tag", tag),
    ]  # fmt: skip
    visits = [ready(driver, driver.visit([65, 66], asks(*each))) for each in grammars]
    driver.write(visits, 4)
    texts = [bytes(i for i in output(visit) if i < 256).decode("latin1") for visit in visits]
    assert texts[0][:4] in ('"yes', '"no"')
    assert texts[2].startswith(("yes", "no")) and texts[3].startswith(("yes", "no"))


NESTED = "[a-c]((.{0,50}){0,50}){0,9}z"
"""Its masks take longer with every character."""


def test_a_grammar_that_explodes_ends_its_request_alone(
    bytes_served: Served, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_process, "walk", lambda _: None)
    monkeypatch.setattr(matching, "BUDGET", matching.BUDGET._replace(call=0.02))
    (prompt, wanted), *_ = cases(bytes_served.model, 1, seed=3).values()
    bound = ready(driver, driver.visit(prompt, asks()))
    slow = ready(driver, driver.visit([65, 66], asks(text=NESTED)))
    for visit in (bound, slow):
        driver.admit(visit)
    while not (batch := driver.step([(bound, bound.pending), (slow, slow.pending)])).failed:
        for visit, token in zip((bound, slow), batch.tokens, strict=True):
            visit.tokens.append(token)
        assert len(output(bound)) < 12
    [(row, error)] = batch.failed.items()
    assert (row, error.field) == (1, "regex")
    assert str(error) == "its grammar takes too long to follow; make it simpler"
    bound.tokens.append(batch.tokens[0])
    assert output(bound) == wanted[: len(output(bound))]
    state = slow.handle.rules.matching(slow)
    slow.tokens.append(97)
    monkeypatch.setattr(state, "_follow", no_wake)
    assert "too long" in state.mask(slow, slow.length, matching.new_masks(1, 300)), (
        "not tried again"
    )


def test_tokens_followed_at_once_have_a_limit_together(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit = ready(driver, driver.visit([65, 66], asks()))
    driver.write([visit], 5)
    driver.release(visit)
    monkeypatch.setattr(matching, "BUDGET", matching.BUDGET._replace(total=1e-9))
    driver.admit(visit)
    assert driver.step([(visit, visit.pending)]).failed


def test_drafts_that_their_grammar_forbids_end_the_request(driver: Driver) -> None:
    """Also where they come in chunks: what the first one finds is found again."""
    visit = ready(driver, driver.visit([65, 66], asks()))
    driver.hand(visit, [ord("z"), ord("a")])
    driver.admit(visit)
    assert 0 not in driver.step([(visit, visit.pending - 1)]).failed
    failed = driver.step([(visit, visit.pending)]).failed
    assert "cannot be followed" in str(failed[0])


def test_off(bytes_served: Served, driver: Driver) -> None:
    bytes_served.engine._grammars = False
    bytes_served.engine._compiler = None
    try:
        with pytest.raises(RequestError, match=r"^regex: .*grammar_backend"):
            driver.engine.prepare(driver.visit([65], asks()), no_wake)
    finally:
        bytes_served.engine._grammars = True


def test_a_mask_allows_what_it_leaves() -> None:
    mask = torch.zeros(2, dtype=torch.int32)
    mask[0], mask[1] = -(2**31), 2  # ids 31 and 33
    leaves: Callable[[Sequence[int]], bool] = lambda ids: matching.leaves(mask, ids)  # noqa: E731
    assert leaves([]) and leaves([31]) and leaves([33, 0])
    assert not leaves([31, 33])
    assert mask.tolist() == [-(2**31), 2]
