from __future__ import annotations

import pytest

from tokenrouter.schedulers.signals import (
    Aleatoric,
    Entropy,
    Epistemic,
    NormalisedEntropy,
    TopLogits,
    TopProbability,
)


def test_names_tell_signals_apart():
    signals = (
        Entropy(), NormalisedEntropy(), Aleatoric(), Epistemic(), TopProbability(),
        TopLogits(3), TopLogits(10),
    )  # fmt: skip
    assert [each.name for each in signals] == [
        "entropy", "normalised_entropy", "aleatoric", "epistemic", "top_probability",
        "top_logits_3", "top_logits_10",
    ]  # fmt: skip


def test_top_logits_need_at_least_one():
    with pytest.raises(ValueError, match="at least 1"):
        TopLogits(0)
