"""Rows whose logits are no numbers, as those of a broken model: nothing can be drawn from them.

Used by `engine.py`, so that such a row fails its own request, and no draw of the batch. Looking at
a tensor waits for its device; where that takes time (not ``synchronous``), it is put off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch

from tokenrouter.errors import ModelError
from tokenrouter.subserver.engine import Work
from tokenrouter.subserver.sglang_compat.rules import Place

LARGEST = 1e30
"""A logit beyond it is none: divided by the least temperature, 1e-6, it is not finite."""
Unsound: TypeAlias = "Sequence[int] | torch.Tensor"
"""Rows of the logits; or of each row (bool) whether it is one."""


def repair(logits: torch.Tensor, synchronous: bool) -> Unsound:
    """Unsound rows of adjusted ``[rows, vocabulary]``; all their tokens get the same logit."""
    largest = logits.amax(dim=-1)
    if synchronous:
        rows = [row for row, logit in enumerate(largest.tolist()) if not _is_sound(logit)]
        if rows:
            logits[rows] = 0.0
        return rows
    unsound = _flags(largest)
    logits.masked_fill_(unsound.unsqueeze(1), 0.0)
    return unsound


def found(logits: torch.Tensor, greedy: torch.Tensor, synchronous: bool) -> Unsound:
    """The same, of rows whose largest logits, as which a NaN counts, are those of ``greedy``."""
    if synchronous:
        logit = logits.numpy().item
        tokens = enumerate(greedy.tolist())
        return [row for row, token in tokens if not _is_sound(logit(row, token))]
    return _flags(logits.gather(1, greedy.unsqueeze(1)).squeeze(1))


def failures(
    work: Sequence[Work], places: Sequence[Place], unsound: Unsound
) -> Mapping[int, ModelError]:
    """Why rows of ``work`` have no token: they are unsound, or a place of theirs to check is."""
    if isinstance(unsound, torch.Tensor):
        unsound = [row for row, each in enumerate(unsound.tolist()) if each]
    if not unsound:
        return {}
    visits = {place.visit for place in places if place.row in unsound}
    return {
        row: ModelError(
            "the model computed logits that are NaN or infinite: its weights are broken, or its "
            "numbers too large for its dtype"
        )
        for row, (visit, _) in enumerate(work)
        if row in unsound or visit in visits
    }


def _is_sound(largest: float) -> bool:
    return -LARGEST < largest < LARGEST


def _flags(largest: torch.Tensor) -> torch.Tensor:
    return ~(largest.abs() < LARGEST)
