"""Declared signals, computed for a whole batch on the device from its raw logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tokenrouter.schedulers.signals import (
    Entropy,
    Signal,
    TokenProbabilities,
    TopLogits,
    TopProbability,
)


def columns(logits: torch.Tensor, signals: Sequence[Signal]) -> list[torch.Tensor]:
    """One float32 block ``[rows, width]`` per signal, on the device of ``logits``.

    ``logits`` are raw, ``[rows, vocabulary]``; the blocks do not alias them, so sampling
    may overwrite them afterwards.
    """
    if not signals:
        return []
    raw = logits.float()
    needs_softmax = any(not isinstance(signal, TopLogits) for signal in signals)
    probabilities = torch.softmax(raw, dim=-1) if needs_softmax else raw
    return [_column(raw, probabilities, signal) for signal in signals]


def _column(raw: torch.Tensor, probabilities: torch.Tensor, signal: Signal) -> torch.Tensor:
    if isinstance(signal, Entropy):
        # entr(p) = -p ln p, and 0 where p underflowed.
        return torch.special.entr(probabilities).sum(dim=-1, keepdim=True)
    if isinstance(signal, TopProbability):
        return probabilities.amax(dim=-1, keepdim=True)
    if isinstance(signal, TokenProbabilities):
        return probabilities[:, list(signal.ids)]
    return raw.topk(min(signal.k, raw.shape[-1]), dim=-1).values


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
        if isinstance(signal, Entropy | TopProbability):
            values[signal] = [row[start] for row in rows]
        else:
            values[signal] = [row[start:stop] for row in rows]
        start = stop
    return [int(row[0]) for row in rows], values
