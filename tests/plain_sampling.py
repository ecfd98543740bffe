"""The rules of sampling, written plainly: one request, one token at a time, no state kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import torch

from tokenrouter.ipc.messages import Sampling


def adjusted(
    logits: torch.Tensor,
    sampling: Sampling,
    prompt: Sequence[int],
    output: Sequence[int],
    eos_ids: Collection[int] = (),
) -> torch.Tensor:
    """``logits`` after penalties, ends that come too early, and bias."""
    logits = logits.clone()
    for token in set(prompt) | set(output):
        old = float(logits[token])
        penalty = sampling.repetition_penalty
        logits[token] = old / penalty if old > 0 else old * penalty
    for token, count in Counter(output).items():
        logits[token] -= sampling.frequency_penalty * count + sampling.presence_penalty
    if len(output) < sampling.min_new_tokens:
        for token in {*eos_ids, *sampling.stop_token_ids}:
            logits[token] = -torch.inf
    for token, bias in sampling.logit_bias.items():
        logits[token] += bias
    return logits


def limited(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Probabilities that the next token is drawn with, after temperature and limits."""
    probabilities = torch.softmax(logits.double() / sampling.temperature, dim=-1)
    order = sorted(range(len(probabilities)), key=lambda i: -float(probabilities[i]))
    kept: list[int] = []
    mass = 0.0
    for rank, token in enumerate(order):
        p = float(probabilities[token])
        too_many = 0 < sampling.top_k <= rank
        if too_many or mass > sampling.top_p or p < sampling.min_p * probabilities[order[0]]:
            break
        kept.append(token)
        mass += p
    result = torch.zeros_like(probabilities)
    result[kept] = probabilities[kept]
    return result / result.sum()
