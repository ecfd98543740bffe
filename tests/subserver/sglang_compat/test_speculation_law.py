"""Sampled speculation over two engines follows its rule's law: the joint of the first tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch

from tests.acceptance_law import target_of
from tests.chi_square import Law, p_value
from tests.plain_sampling import adjusted, limited
from tests.subserver.harness import Answer, Deployment
from tests.subserver.sglang_compat.conftest import Build
from tests.subserver.sglang_compat.tiny_models import TinyModel, build_model
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.schedulers.signals import Acceptance
from tokenrouter.schedulers.speculative import Speculative
from tokenrouter.subserver.sglang_compat import acceptance

PROMPT = [5, 17, 250, 31, 8, 99]
COUNT = 1200
ROUTE = Route("speculative", (0, 1), 0, token_models=True)
NOISE = 0.03
"""Added to the large model's weights, it makes the small one's laws similar, and other ones."""
PLAIN = Sampling(3, temperature=0.7, ignore_eos=True)


class Pair(NamedTuple):
    """The small and the large model, and their engines."""

    models: list[TinyModel]
    engines: list[Any]


@pytest.fixture(scope="session")
def pair(llama: TinyModel, tmp_path_factory: pytest.TempPathFactory, build: Build) -> Pair:
    folder: Path = tmp_path_factory.mktemp("small")
    small = build_model(folder, "llama", seed=2)
    torch.manual_seed(3)
    with torch.no_grad():
        for weights in small.plain.parameters():
            weights += NOISE * torch.randn_like(weights)
    small.plain.save_pretrained(folder)
    # Prompts that are alike would share KV, of which the deployment keeps no account.
    options = {"max_total_tokens": 20_000, "disable_radix_cache": True, "max_running_requests": 256}
    return Pair([small, llama], [build(m.path, **options) for m in (small, llama)])


def sample(pair: Pair, route: Route, samplings: Sequence[Sampling]) -> list[Answer]:
    """Requests with the same prompt, all at once."""

    def engine(*_: Any, seed: int, **__: Any) -> Any:
        return pair.engines[seed]

    torch.manual_seed(1)
    deployment = Deployment(
        [100, 100], pools=20_000, max_visits=256, engine=engine, eos_ids=[(), ()]
    )
    for uid, sampling in enumerate(samplings):
        deployment.submit(uid, PROMPT, route, sampling, stream=False)
    deployment.run()
    for each in pair.engines:
        each.check_pools()
    return list(deployment.answers.values())


class Case(NamedTuple):
    """How it is asked for."""

    rule: Acceptance
    args: dict[str, Any]
    sampling: Sampling = PLAIN


def law_of(pair: Pair, case: Case) -> Law:
    """What plain code says of the next token."""
    sampling, top_k = case.sampling, case.args.get("draft_top_k", 128)

    @cache
    def law(output: tuple[int, ...]) -> torch.Tensor:
        raw = [model.logits([*PROMPT, *output]) for model in pair.models]
        q, p = (limited(adjusted(each, sampling, PROMPT, output), sampling) for each in raw)
        q1, p1 = (torch.softmax(each.double(), dim=-1).tolist() for each in raw)
        likeliest = q.topk(top_k)
        q = torch.zeros_like(q).scatter(0, likeliest.indices, likeliest.values)
        pi = target_of(case.rule, p.tolist(), (q / q.sum()).tolist(), p1, q1)
        return torch.tensor(pi, dtype=torch.float64)

    return law


def chance(pair: Pair, case: Case, seeded: bool = False, count: int = COUNT) -> float:
    """Of a distance as great as the one found, if answers follow the law of ``case``."""
    args = {"rule": case.rule.kind, **case.args}
    alpha = None if case.rule.kind == "exact" else case.rule.alpha
    route = msgspec.structs.replace(ROUTE, args=args, router_threshold=alpha)
    seeds = range(count) if seeded else [None] * count
    samplings = [msgspec.structs.replace(case.sampling, seed=seed) for seed in seeds]
    answers = sample(pair, route, samplings)
    writers = [writer for answer in answers for writer in answer.models]
    assert 0.1 < sum(writers) / len(writers) < 0.9
    return p_value(law_of(pair, case), [answer.tokens for answer in answers])


EXACT = Acceptance("exact")
LIMITED = msgspec.structs.replace(
    PLAIN, top_p=0.95, min_p=0.01, frequency_penalty=1.5, logit_bias={182: 1.0, 84: -1.0}
)
CASES = {
    "one draft": Case(EXACT, {"draft_length": 1}),
    "adaptive, with limits, penalties and bias": Case(
        EXACT, {"draft_length": 3, "adaptive": True}, LIMITED
    ),
    "drawn from two tokens": Case(EXACT, {"draft_length": 2, "draft_top_k": 2}),
    "chow": Case(Acceptance("chow", 0.6), {"draft_length": 1}),
    "diff": Case(Acceptance("diff", 0.05), {"draft_length": 2}),
    "opt": Case(Acceptance("opt", 0.1), {"draft_length": 1}),
    "token v1": Case(Acceptance("token_v1", 0.1), {"draft_length": 2}),
    "token v2": Case(Acceptance("token_v2", 0.1), {"draft_length": 2}),
    "token v3": Case(Acceptance("token_v3", 0.6), {"draft_length": 1}),
}
LEAST = 0.001 / (2 * len(CASES))
"""Bonferroni: one wrong alarm in a thousand, over all tests of this file."""


def test_three_tokens_follow_the_large_model_s_law(pair: Pair):
    """The first, one after a rejection, and one after drafts that all stay, in all orders."""
    assert chance(pair, CASES["one draft"], count=500) > LEAST


@pytest.mark.slow
@pytest.mark.parametrize("seeded", [False, True], ids=["generator", "seeds"])
@pytest.mark.parametrize("name", CASES)
def test_three_tokens_follow_the_rule_s_law(pair: Pair, name: str, seeded: bool):
    assert chance(pair, CASES[name], seeded) > LEAST


def test_the_mutant_that_draws_from_p_after_a_rejection_is_noticed(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(acceptance, "residual", lambda mixture, target, proposed: target.clone())
    assert chance(pair, CASES["one draft"], count=500) < LEAST


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chow", "opt"])
def test_a_cascade_that_adds_a_token_of_p_to_a_full_round_is_noticed(
    pair: Pair, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Speculative, "bonus", True)
    assert chance(pair, CASES[name]) < LEAST


@pytest.mark.slow
def test_the_same_numbers_for_all_are_noticed(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    """Draws that depend on the position only are the same in every request."""
    real = torch.rand

    def rand(*size: int, **options: Any) -> torch.Tensor:
        return real(1, *size[1:], **options).expand(*size).clone()

    monkeypatch.setattr(torch, "rand", rand)
    assert chance(pair, CASES["one draft"]) < LEAST
