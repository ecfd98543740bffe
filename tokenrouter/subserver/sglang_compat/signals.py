"""Declared signals, computed for a whole batch on the device from its raw logits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tokenrouter.schedulers.signals import (
    Aleatoric,
    Entropy,
    Epistemic,
    NormalisedEntropy,
    OfLogits,
    RouterScore,
    Scored,
    Signal,
    TokenProbabilities,
    TopLogits,
    TopProbability,
)

EVIDENCE = 10
"""Largest logits of which `Aleatoric` and `Epistemic` are made."""
OF_LOGITS = (TopLogits, Aleatoric, Epistemic)
"""Signals that need no softmax."""


def columns(logits: torch.Tensor, signals: Sequence[OfLogits]) -> list[torch.Tensor]:
    """One float32 block ``[rows, width]`` per signal, on the device of ``logits``.

    ``logits`` are raw, ``[rows, vocabulary]``; the blocks do not alias them, so sampling
    may overwrite them afterwards.
    """
    if not signals:
        return []
    raw = logits.float()
    needs_softmax = any(not isinstance(signal, OF_LOGITS) for signal in signals)
    probabilities = torch.softmax(raw, dim=-1) if needs_softmax else raw
    return [_column(raw, probabilities, signal) for signal in signals]


def _column(raw: torch.Tensor, probabilities: torch.Tensor, signal: OfLogits) -> torch.Tensor:
    if isinstance(signal, Entropy):
        return _entropy(probabilities)
    if isinstance(signal, NormalisedEntropy):
        return _entropy(probabilities) / math.log(raw.shape[-1])
    if isinstance(signal, Aleatoric):
        return _aleatoric(_top(raw, EVIDENCE))
    if isinstance(signal, Epistemic):
        top = _top(raw, EVIDENCE)
        return EVIDENCE / (top.sum(dim=-1, keepdim=True) + EVIDENCE)
    if isinstance(signal, TopProbability):
        return probabilities.amax(dim=-1, keepdim=True)
    if isinstance(signal, TokenProbabilities):
        return _of_ids(probabilities, signal.ids)
    return _top(raw, signal.k)


def _of_ids(probabilities: torch.Tensor, ids: Sequence[int]) -> torch.Tensor:
    """Columns ``ids``; 0 of those that there are not."""
    width = probabilities.shape[-1]
    found = probabilities[:, [min(each, width - 1) for each in ids]]
    if any(each >= width for each in ids):
        found[:, [place for place, each in enumerate(ids) if each >= width]] = 0.0
    return found


def _entropy(probabilities: torch.Tensor) -> torch.Tensor:
    # entr(p) = -p ln p, and 0 where p underflowed.
    return torch.special.entr(probabilities).sum(dim=-1, keepdim=True)


def _top(raw: torch.Tensor, k: int) -> torch.Tensor:
    return raw.topk(min(k, raw.shape[-1]), dim=-1).values


def _aleatoric(top: torch.Tensor) -> torch.Tensor:
    total = top.sum(dim=-1, keepdim=True)
    surprise = torch.digamma(total + 1) - torch.digamma(top + 1)
    return (top / total * surprise).sum(dim=-1, keepdim=True)


def fetch(
    tokens: torch.Tensor, signals: Sequence[Signal], blocks: Sequence[torch.Tensor]
) -> tuple[list[int], Mapping[Signal, Sequence[Any]]]:
    """Token ids and signal values of a batch, brought to the host in one transfer.

    They travel as float64, which holds ids and float32 values exactly.
    """
    if not blocks:
        return tokens.tolist(), {}
    packed = torch.cat([tokens.unsqueeze(1).double(), *(block.double() for block in blocks)], dim=1)
    rows = packed.tolist()
    values: dict[Signal, Sequence[Any]] = {}
    start = 1
    for signal, block in zip(signals, blocks, strict=True):
        stop = start + block.shape[1]
        if isinstance(signal, RouterScore):
            values[signal] = [Scored(*row[start:stop]) for row in rows]
        elif isinstance(signal, TopLogits | TokenProbabilities):
            values[signal] = [row[start:stop] for row in rows]
        else:
            values[signal] = [row[start] for row in rows]
        start = stop
    return [int(row[0]) for row in rows], values
