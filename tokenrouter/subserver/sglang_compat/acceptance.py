"""Whether drafts stay, and what replaces them: speculative sampling and cascades.

Pure functions of laws and uniform numbers, over many drafts at once, used by `judging.py`.
Write q for the law from which a draft was drawn, p for the checking member's, both as sampled.
All rules of `signals.Acceptance` are one: they mix a target ``pi(v) = a p(v) + b(v) q(v)``, keep
a draft v with probability ``min(1, pi(v) / q(v))``, and else draw from ``max(pi - q, 0)``: then
the token follows pi (arXiv 2211.17192, appendix A.1, with pi for the target).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy
import torch

from tokenrouter.schedulers.base import Proposal
from tokenrouter.schedulers.signals import Acceptance
from tokenrouter.subserver.sglang_compat.inversion import pick


class Drafted(NamedTuple):
    """Laws of n drafts over at most K ids each; what pads them has the probability zero.

    ``ids`` (int64), ``law`` (q) and ``raw`` (at temperature 1) are ``[n, K]``; ``top`` is
    ``[n, 1]``, the largest probability at temperature 1. float64.
    """

    ids: torch.Tensor
    law: torch.Tensor
    raw: torch.Tensor
    top: torch.Tensor


class Own(NamedTuple):
    """Of the checking member's law at temperature 1: the largest probability ``[n, 1]``, and
    those of the drafts' ids ``[n, K]``. float64.
    """

    top: torch.Tensor
    of_ids: torch.Tensor


class Mixture(NamedTuple):
    """``pi = of_target * p + of_draft * q``: ``[n, 1]``, and ``[n, K]`` for the drafts' ids."""

    of_target: torch.Tensor
    of_draft: torch.Tensor


class Judged(NamedTuple):
    """By draft: whether it stays (bool), and what replaces it if not (int64). ``[n]``."""

    accepted: torch.Tensor
    tokens: torch.Tensor


def drafted(proposals: Sequence[Proposal], vocabulary: int, device: torch.device) -> Drafted:
    """The laws of drafts on the device; ids from ``vocabulary`` on are left out."""
    count, width = len(proposals), max(len(each.ids) for each in proposals)
    ids = numpy.zeros((count, width), numpy.int64)
    laws = numpy.zeros((2, count, width))
    for row, each in enumerate(proposals):
        size = len(each.ids)
        ids[row, :size] = each.ids
        laws[0, row, :size], laws[1, row, :size] = each.probabilities, each.raw
    laws[:, ids >= vocabulary] = 0.0
    ids[ids >= vocabulary] = 0
    laws[0] /= laws[0].sum(axis=1, keepdims=True)
    top = numpy.array([[each.top] for each in proposals])
    law, raw = torch.from_numpy(laws).to(device)
    return Drafted(torch.from_numpy(ids).to(device), law, raw, torch.from_numpy(top).to(device))


def judge(
    rules: Sequence[Acceptance],
    target: torch.Tensor,
    own: Own,
    drafts: torch.Tensor,
    proposed: Drafted,
    uniforms: torch.Tensor,
) -> Judged:
    """Keep or replace ``drafts`` (int64, ``[n]``), each by its rule.

    ``target``: p, ``[n, vocabulary]``. ``uniforms``: ``[n, 2]``, float64: whether the draft
    stays, and what replaces it.
    """
    mixture = mix(rules, target, own, proposed)
    accepted = uniforms[:, 0] < chances(mixture, target, drafts, proposed)
    rest = residual(mixture, target, proposed)
    # Nothing is left where pi is q, and every draft stays.
    possible = rest.sum(dim=-1, keepdim=True) > 0
    return Judged(accepted, pick(rest.where(possible, target), uniforms[:, 1]))


def mix(rules: Sequence[Acceptance], target: torch.Tensor, own: Own, proposed: Drafted) -> Mixture:
    """The law that each rule demands; arguments as of `judge`."""
    mixture = Mixture(torch.empty_like(proposed.top), torch.empty_like(proposed.law))
    for rule in dict.fromkeys(rules):
        rows = torch.tensor([r == rule for r in rules], device=target.device)
        part = Drafted(*(each[rows] for each in proposed))
        mixed = _mixture(rule, target[rows], Own(own.top[rows], own.of_ids[rows]), part)
        mixture.of_target[rows], mixture.of_draft[rows] = mixed
    return mixture


def chances(
    mixture: Mixture, target: torch.Tensor, drafts: torch.Tensor, proposed: Drafted
) -> torch.Tensor:
    """``pi / q`` of each draft, ``[n]``: the probability to stay, where it is below one."""
    here = (proposed.ids == drafts.unsqueeze(1)) & (proposed.law > 0)
    q = (proposed.law * here).sum(dim=-1)
    of_draft = (mixture.of_draft * proposed.law * here).sum(dim=-1)
    of_target = mixture.of_target * target.gather(1, drafts.unsqueeze(1))
    return (of_target.squeeze(1) + of_draft) / q


def residual(mixture: Mixture, target: torch.Tensor, proposed: Drafted) -> torch.Tensor:
    """``max(pi - q, 0)``, ``[n, vocabulary]``."""
    rest = mixture.of_target * target
    before = rest.gather(1, proposed.ids)
    after = (before + (mixture.of_draft - 1) * proposed.law).clamp(min=0)
    # Added, so that padding, which repeats an id, changes nothing.
    change = (after - before).where(proposed.law > 0, 0.0)
    return rest.scatter_add_(1, proposed.ids, change).clamp_(min=0)


def _mixture(rule: Acceptance, target: torch.Tensor, own: Own, proposed: Drafted) -> Mixture:
    alpha, top = rule.alpha, own.top
    if rule.kind == "exact":
        deferred = torch.ones_like(top)
    elif rule.kind == "chow":
        deferred = (proposed.top < 1 - alpha).double()
    elif rule.kind == "diff":
        deferred = (proposed.top < top - alpha).double()
    elif rule.kind == "opt":
        deferred = (proposed.top < top - alpha * _distance(target, proposed)).double()
    else:
        return _by_token(rule, own, proposed)
    return Mixture(deferred, (1 - deferred).expand_as(proposed.law))


def _by_token(rule: Acceptance, own: Own, proposed: Drafted) -> Mixture:
    if rule.kind == "token_v1":
        good = proposed.raw >= own.top - rule.alpha
    elif rule.kind == "token_v2":
        good = own.of_ids >= own.top - rule.alpha
    else:
        good = own.of_ids >= (1 - rule.alpha) * own.top
    stays = good.double()
    return Mixture((proposed.law * (1 - stays)).sum(dim=-1, keepdim=True), stays)


def _distance(target: torch.Tensor, proposed: Drafted) -> torch.Tensor:
    """Total variation of p and q, ``[n, 1]``: what q has more than p."""
    more = proposed.law - target.gather(1, proposed.ids)
    return more.where(proposed.law > 0, 0.0).clamp(min=0).sum(dim=-1, keepdim=True)
