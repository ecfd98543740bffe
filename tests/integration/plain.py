"""Hugging Face models for `tests.plain_loop`, float32, greedy, which note how close it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tests.integration.reference import MIN_DISTANCE, MIN_GAP, Model
from tokenrouter.schedulers.base import Check
from tokenrouter.schedulers.signals import Checks, Declared
from tokenrouter.subserver.sglang_compat.signals import columns, fetch


@dataclass
class Margins:
    """The smallest of one request: between two largest logits; between scores and thresholds."""

    gap: float = float("inf")
    distance: float = float("inf")

    @property
    def honest(self) -> bool:
        """Whether every decision has a margin that float32 noise cannot cross."""
        return self.gap >= MIN_GAP and self.distance >= MIN_DISTANCE


class PlainView:
    """A model's view of one request, which may shrink; a `plain_loop.PlainModel`."""

    def __init__(self, model: Model, margins: Margins) -> None:
        self._model, self._margins = model._model, margins
        self._cache: Any = None
        self._tokens: list[int] = []
        self._rows: list[torch.Tensor] = []

    def step(
        self, tokens: Sequence[int], signals: Sequence[Declared]
    ) -> tuple[int, Mapping[str, Any]]:
        """The likeliest token, and the signals as the engine's code computes them."""
        row = self._logits(tokens)
        valued = [signal for signal in signals if not isinstance(signal, Checks)]
        _, values = fetch(torch.zeros(1, dtype=torch.int64), valued, columns(row[None], valued))
        return self._best(row), {signal.name: values[signal][0] for signal in valued}

    def check(self, tokens: Sequence[int], draft: int) -> Check:
        """By the likeliest token, and the softmax."""
        row = self._logits(tokens)
        best = self._best(row)
        return Check(best, float(torch.softmax(row, dim=-1)[draft]), best == draft)

    def _best(self, row: torch.Tensor) -> int:
        first, second = row.topk(2).values.tolist()
        self._margins.gap = min(self._margins.gap, first - second)
        return int(row.argmax())

    @torch.no_grad()
    def _logits(self, tokens: Sequence[int]) -> torch.Tensor:
        known = _common(self._tokens, tokens)
        if known < len(tokens):
            if self._cache is not None:
                self._cache.crop(known)
            fresh = torch.tensor([list(tokens[known:])])
            output = self._model(fresh, past_key_values=self._cache, use_cache=True)
            self._cache = output.past_key_values
            self._tokens = list(tokens)
            self._rows[known:] = output.logits[0].float()
        return self._rows[len(tokens) - 1]


def _common(some: Sequence[int], others: Sequence[int]) -> int:
    pairs = zip(some, others, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(some), len(others)))
