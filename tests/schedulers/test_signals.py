from __future__ import annotations

from typing import Any

import pytest

from tokenrouter.schedulers.signals import (
    Acceptance,
    Aleatoric,
    Checks,
    Entropy,
    Epistemic,
    NormalisedEntropy,
    Proposals,
    TokenProbabilities,
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


@pytest.mark.parametrize("k", [0, -1, 2.5, True, "3", None])
@pytest.mark.parametrize("kind", [TopLogits, Proposals])
def test_how_many_is_a_whole_number(kind: Any, k: Any):
    with pytest.raises(ValueError, match="whole number of at least 1"):
        kind(k)


@pytest.mark.parametrize("ids", [[1, 2], (1, -1), (1.0,), ("one",), 3, None])
def test_token_probabilities_are_of_ids(ids: Any):
    with pytest.raises(ValueError, match="tuple of token ids"):
        TokenProbabilities(ids)


@pytest.mark.parametrize("given", [("chou",), ("chow", 1.5), ("chow", float("nan")), (None,)])
def test_rules_of_acceptance_that_there_are_not(given: Any):
    with pytest.raises(ValueError, match="must"):
        Acceptance(*given)


def test_a_rule_of_checks_is_an_acceptance():
    with pytest.raises(TypeError, match="Acceptance"):
        Checks(rule="exact")  # type: ignore[arg-type]
