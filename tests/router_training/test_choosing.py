"""Thresholds and what they give, by hand and against trying every threshold."""

from __future__ import annotations

import pytest
import torch

from tokenrouter.router_training.choosing import (
    calibration,
    for_recall,
    for_share,
    quality,
    ranking,
    unweighted,
)

SCORES = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05])
LABELS = torch.tensor([1, 1, 0, 1, 0, 0, 1, 0, 0, 0]).bool()


def drawn(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores with ties, and labels that they tell something about."""
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.rand(200, generator=generator) * 40).round() / 40
    return scores, torch.rand(200, generator=generator) < scores**2


def test_by_hand() -> None:
    assert for_recall(SCORES, LABELS, 0.75) == pytest.approx(0.6)
    assert for_recall(SCORES, LABELS, 0.76) == pytest.approx(0.3)
    assert for_share(SCORES, 0.2) == pytest.approx(0.8)
    found = quality(SCORES, LABELS, 0.55)
    assert (found.share, found.recall, found.precision) == (0.4, 0.75, 0.75)
    assert ranking(SCORES, LABELS) == pytest.approx((6 + 6 + 5 + 3) / 24)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("recall", [0.5, 0.95, 1.0])
def test_no_threshold_of_the_same_recall_sends_less(seed: int, recall: float) -> None:
    scores, labels = drawn(seed)
    found = quality(scores, labels, for_recall(scores, labels, recall))
    every = [quality(scores, labels, threshold) for threshold in scores.unique().tolist()]
    assert found.recall >= recall
    assert found.share == min(each.share for each in every if each.recall >= recall)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.001, 0.05, 0.5, 1.0])
def test_no_threshold_within_the_share_sends_more(seed: int, share: float) -> None:
    scores, labels = drawn(seed)
    found = quality(scores, labels, for_share(scores, share)).share
    every = [quality(scores, labels, threshold).share for threshold in scores.unique().tolist()]
    assert found == max([each for each in every if each <= share], default=0.0)


def test_ranking_is_the_rate_of_right_pairs() -> None:
    scores, labels = drawn(7)
    pairs = scores[labels][:, None] - scores[~labels][None, :]
    rate = ((pairs > 0).double() + (pairs == 0).double() / 2).mean()
    assert ranking(scores, labels) == pytest.approx(float(rate), abs=1e-12)


def test_weights_of_the_loss_are_taken_off() -> None:
    assert float(unweighted(torch.tensor([0.5]), 9.0)) == pytest.approx(0.1)
    assert float(unweighted(torch.tensor([1.0]), 9.0)) == 1.0


def test_bins_hold_every_position_once() -> None:
    probabilities, labels = drawn(3)
    bins = calibration(probabilities, labels, bins=4)
    assert len(bins) == 4 and sum(each.count for each in bins) == 200
    observed = sum(each.count * each.observed for each in bins)
    predicted = sum(each.count * each.predicted for each in bins)
    assert observed == pytest.approx(int(labels.sum()))
    assert predicted == pytest.approx(float(probabilities.sum()), rel=1e-5)
