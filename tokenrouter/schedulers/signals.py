"""What an algorithm may ask of a step besides its token.

A signal is computed once per batch, on the device, from the RAW logits (before
temperature, penalties and masks), in float32. A row's value reaches `Step.signals`
under the signal's ``name``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entropy:
    """Entropy of the full softmax, in nats: ``-sum p ln p`` (a float)."""

    @property
    def name(self) -> str:
        """Key in `Step.signals`."""
        return "entropy"


@dataclass(frozen=True, slots=True)
class TopProbability:
    """The largest softmax probability (a float in (0, 1])."""

    @property
    def name(self) -> str:
        """Key in `Step.signals`."""
        return "top_probability"


@dataclass(frozen=True, slots=True)
class TopLogits:
    """The ``k`` largest logits, descending (k floats, or as many as there are tokens)."""

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")

    @property
    def name(self) -> str:
        """Key in `Step.signals`."""
        return f"top_logits_{self.k}"


Signal = Entropy | TopProbability | TopLogits
