"""Acceptance of drafts: every rule's law, by outcome, against its formula written plainly."""

from __future__ import annotations

from functools import cache
from typing import get_args

import pytest
import torch

from tests.acceptance_law import target_of
from tokenrouter.schedulers.base import Proposal
from tokenrouter.schedulers.signals import Acceptance, Rule
from tokenrouter.subserver.sglang_compat.acceptance import (
    Drafted,
    Own,
    chances,
    drafted,
    judge,
    mix,
    residual,
)

SIZE = 5
CPU = torch.device("cpu")
SEEDS = 60
KINDS: tuple[Rule, ...] = get_args(Rule)
ALPHAS = (0.0, 0.1, 0.3, 0.5, 0.9)
Laws = tuple[list[float], ...]
"""p and q as sampled, and at temperature 1."""
Case = tuple[Acceptance, Laws]


@cache
def all_laws() -> list[Laws]:
    """Of `SEEDS` positions; some probabilities are zero or equal, and some q are p."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(SEEDS, 2, SIZE, generator=generator, dtype=torch.float64)
    logits[::3, 0] = logits[::3, 1]
    temperature = torch.tensor([0.7, 2.0], dtype=torch.float64).repeat(SEEDS // 2)
    sampled = torch.softmax(logits / temperature[:, None, None], dim=-1)
    for seed in range(1, SEEDS, 2):
        sampled[seed, 0, seed % SIZE] = sampled[seed, 1, seed // 2 % SIZE] = 0.0
    sampled /= sampled.sum(dim=-1, keepdim=True)
    raw = torch.softmax(logits, dim=-1)
    return [(*a, *b) for a, b in zip(sampled.tolist(), raw.tolist(), strict=True)]


def proposal(laws: Laws) -> Proposal:
    """Its ids in some order, without impossible ones."""
    _, q, _, q1 = laws
    ids = [v for v in (3, 0, 4, 2, 1) if q[v] > 0]
    return Proposal(ids, [q[v] for v in ids], [q1[v] for v in ids], max(q1))


def outcomes(cases: list[Case], mutant: bool = False) -> list[list[float]]:
    """By case, the probability of each token, over all drafts and both uniform numbers."""
    rows = [(i, draft) for i, (_, given) in enumerate(cases) for draft in proposal(given).ids]
    of_rows = [cases[i] for i, _ in rows]
    rules, drafts = [rule for rule, _ in of_rows], torch.tensor([draft for _, draft in rows])
    proposed = drafted([proposal(given) for _, given in of_rows], SIZE, CPU)
    target, q, raw, _ = (table([given[k] for _, given in of_rows]) for k in range(4))
    mixture = mix(rules, target, own_of(raw, proposed), proposed)
    stay = chances(mixture, target, drafts, proposed).clamp(max=1)
    rest = target if mutant else residual(mixture, target, proposed)
    rest = rest / rest.sum(dim=-1, keepdim=True).clamp(min=1e-300)
    drawn = q.gather(1, drafts[:, None]).squeeze(1)
    result = torch.zeros(len(cases), SIZE, dtype=torch.float64)
    for row, (i, draft) in enumerate(rows):
        result[i, draft] += drawn[row] * stay[row]
    cases_of = torch.tensor([i for i, _ in rows])
    return result.index_add(0, cases_of, (drawn * (1 - stay))[:, None] * rest).tolist()


def own_of(raw: torch.Tensor, proposed: Drafted) -> Own:
    return Own(raw.amax(dim=-1, keepdim=True), raw.gather(1, proposed.ids))


def table(laws: list[list[float]]) -> torch.Tensor:
    return torch.tensor(laws, dtype=torch.float64)


def cases_of(kind: Rule) -> list[Case]:
    return [(Acceptance(kind, alpha), given) for given in all_laws() for alpha in ALPHAS]


def furthest(a: list[float], b: list[float]) -> float:
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_out_follows_the_rule_s_law(kind: Rule):
    cases = cases_of(kind)
    for found, case in zip(outcomes(cases), cases, strict=True):
        assert furthest(found, target_of(case[0], *case[1])) < 1e-12


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("law", [0, 1], ids=["p", "q"])
def test_targets_are_often_neither(kind: Rule, law: int):
    """Else the test above says little."""
    cases = cases_of(kind)
    assert sum(furthest(target_of(case[0], *case[1]), case[1][law]) > 0.01 for case in cases) > 40


@pytest.mark.parametrize("kind", KINDS)
def test_the_mutant_that_draws_from_p_after_a_rejection_is_noticed(kind: Rule):
    cases = cases_of(kind)
    found = zip(outcomes(cases, mutant=True), cases, strict=True)
    assert max(furthest(law, target_of(case[0], *case[1])) for law, case in found) > 0.02


def test_rules_and_sizes_of_laws_may_differ_in_one_batch():
    rules = [Acceptance(kind, 0.1) for kind in KINDS] * 4
    given = all_laws()[: len(rules)]
    proposals = [proposal(each) for each in given]
    together = drafted(proposals, SIZE, CPU)
    target, raw = (table([each[k] for each in given]) for k in (0, 2))
    drafts = torch.tensor([each.ids[0] for each in proposals])
    uniforms = torch.rand(len(rules), 2, dtype=torch.float64, generator=torch.manual_seed(1))
    judged = judge(rules, target, own_of(raw, together), drafts, together, uniforms)
    for i, rule in enumerate(rules):
        row = slice(i, i + 1)
        alone = drafted(proposals[row], SIZE, CPU)
        own = own_of(raw[row], alone)
        one = judge([rule], target[row], own, drafts[row], alone, uniforms[row])
        assert (one.accepted[0], one.tokens[0]) == (judged.accepted[i], judged.tokens[i])
    assert 3 < int(judged.accepted.sum()) < len(rules) - 3


def test_uniform_numbers_decide_at_the_right_place():
    """q = (.5, .5), p = (.2, .3, .5): draft 0 stays below .4, and else 2 is drawn."""
    p = torch.tensor([[0.2, 0.3, 0.5]] * 4, dtype=torch.float64)
    proposed = drafted([Proposal([0, 1], [0.5, 0.5], [0.5, 0.5], 0.5)] * 4, 3, CPU)
    drafts = torch.tensor([0, 0, 1, 1])
    uniforms = torch.tensor([[0.399, 0.0], [0.401, 0.999], [0.599, 0.0], [0.601, 0.0]])
    rules = [Acceptance("exact")] * 4
    judged = judge(rules, p, own_of(p, proposed), drafts, proposed, uniforms.double())
    assert judged.accepted.tolist() == [True, False, True, False]
    assert judged.tokens.tolist() == [2, 2, 2, 2]


def test_where_nothing_is_left_every_draft_stays_and_the_token_is_possible():
    p = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    proposed = drafted([Proposal([0, 1], [0.25, 0.75], [0.25, 0.75], 0.75)], 2, CPU)
    last = torch.tensor([[0.9999999, 0.9999999]], dtype=torch.float64)
    rules = [Acceptance("exact")]
    judged = judge(rules, p, own_of(p, proposed), torch.tensor([0]), proposed, last)
    assert (judged.accepted.tolist(), judged.tokens.tolist()) == ([True], [1])


def test_certain_laws_keep_what_both_choose():
    p = torch.tensor([[0.0, 1.0, 0.0]] * 2, dtype=torch.float64)
    proposed = drafted([Proposal([1], [1.0], [0.4], 0.4), Proposal([2], [1.0], [0.4], 0.4)], 3, CPU)
    uniforms = torch.tensor([[0.99, 0.5], [0.0, 0.5]], dtype=torch.float64)
    rules = [Acceptance("exact")] * 2
    judged = judge(rules, p, own_of(p, proposed), torch.tensor([1, 2]), proposed, uniforms)
    assert (judged.accepted.tolist(), judged.tokens.tolist()) == ([True, False], [1, 1])


def test_ids_beyond_the_vocabulary_are_left_out():
    proposed = drafted([Proposal([1, 7], [0.5, 0.5], [0.5, 0.5], 0.5)], 3, CPU)
    assert (proposed.ids.tolist(), proposed.law.tolist()) == ([[1, 0]], [[1.0, 0.0]])
