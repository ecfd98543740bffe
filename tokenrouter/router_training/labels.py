"""Which tokens of the small model change the meaning, and the examples that a network learns from.

A token does if the large model wrote another there and finds this one improbable, and, if there is
a judge, if the judge finds that the text it leads to means something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tokenrouter.errors import MeasurementError
from tokenrouter.router_training.collecting import Shards, file_of

SPLITS = 10
"""Of ten prompts, eight are learned from, the next tells when to stop and the last is a test."""


@dataclass(frozen=True)
class Examples:
    """Positions: tokens [n], top logits [n, 100], hidden states [n, h], labels [n] (bool)."""

    token: torch.Tensor
    logits: torch.Tensor
    hidden: torch.Tensor
    label: torch.Tensor

    def __len__(self) -> int:
        return len(self.token)

    @property
    def positives(self) -> int:
        """How many are to be written by the large model."""
        return int(self.label.sum())

    def where(self, chosen: torch.Tensor) -> Examples:
        """Those of a mask [n] or of indices."""
        return Examples(
            self.token[chosen], self.logits[chosen], self.hidden[chosen], self.label[chosen]
        )


@dataclass(frozen=True)
class Splits:
    """Examples to learn from, to decide by (when to stop, which threshold), and to report on."""

    training: Examples
    validation: Examples
    test: Examples


def diverges(
    tokens: torch.Tensor, answer: torch.Tensor, probability: torch.Tensor, epsilon: float
) -> torch.Tensor:
    """Where the small model's tokens differ, and the large one gives them less than ``epsilon``."""
    return (tokens != answer) & (probability < epsilon)


def divergences(shards: Shards, shard: int, epsilon: float) -> torch.Tensor:
    """`diverges` at all positions of a shard."""
    tokens = shards.store.arrays(file_of("features", shard))["token"]
    answer = shards.store.arrays(file_of("answers", shard))["tokens"]
    probability = shards.store.arrays(file_of("probabilities", shard))["probability"]
    return diverges(tokens, answer, probability, epsilon)


def split_examples(shards: Shards, labels: Sequence[torch.Tensor]) -> Splits:
    """All positions, split by prompt; ``labels`` are those of each shard.

    Raises:
        MeasurementError: a split has no token that changes the meaning, or no other.
    """
    parts, prompts = [], []
    for shard, label in enumerate(labels):
        arrays = shards.store.arrays(file_of("features", shard))
        parts.append((arrays["token"], arrays["logits"], arrays["hidden"], label))
        lengths = shards.store.arrays(file_of("answers", shard))["lengths"]
        numbers = torch.arange(len(lengths)) + shard * shards.size
        prompts.append(numbers.repeat_interleave(lengths))
    every = Examples(*(torch.cat(columns) for columns in zip(*parts, strict=True)))
    turn = torch.cat(prompts) % SPLITS
    splits = Splits(
        training=every.where(turn < SPLITS - 2),
        validation=every.where(turn == SPLITS - 2),
        test=every.where(turn == SPLITS - 1),
    )
    for name, examples in vars(splits).items():
        if not 0 < examples.positives < len(examples):
            raise MeasurementError(
                f"of {len(examples)} positions for {name}, {examples.positives} change the "
                "meaning; a router needs some that do and some that do not: give more prompts"
            )
    return splits
