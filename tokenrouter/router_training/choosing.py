"""Thresholds for a router's scores, and what they give. Scores [n] in 0..1, labels [n] (bool)."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Quality:
    """What a threshold gives, in 0..1; ``share`` is of tokens that the large model writes."""

    threshold: float
    share: float
    recall: float
    precision: float


@dataclass(frozen=True)
class Bin:
    """Of positions with similar scores: how many, their mean probability, and the share found."""

    count: int
    predicted: float
    observed: float


def for_recall(scores: torch.Tensor, labels: torch.Tensor, recall: float) -> float:
    """The highest threshold that finds this share of positives: no other sends fewer tokens.

    (R2R tries 100 values and takes the one with the lowest rate of positives; this is the exact
    answer.)
    """
    positives = scores[labels].sort(descending=True).values
    wanted = max(1, _ceiling(recall * len(positives)))
    return float(positives[wanted - 1])


def for_share(scores: torch.Tensor, share: float) -> float:
    """The lowest threshold that sends at most this share of tokens to the large model."""
    ordered = scores.sort(descending=True).values
    allowed = int(share * len(scores) + 1e-9)
    if allowed == len(scores):
        return float(ordered[-1])
    above = ordered[ordered > ordered[allowed]]
    return float(above[-1]) if len(above) else _just_above(float(ordered[0]))


def _ceiling(number: float) -> int:
    return -int(-number // 1) if abs(number - round(number)) > 1e-9 else round(number)


def _just_above(score: float) -> float:
    return float(torch.nextafter(torch.tensor(score), torch.tensor(float("inf"))))


def quality(scores: torch.Tensor, labels: torch.Tensor, threshold: float) -> Quality:
    """What ``scores >= threshold`` gives; precision is 1 where nothing is sent."""
    sent = scores >= threshold
    hits = int((sent & labels).sum())
    return Quality(
        threshold=threshold,
        share=int(sent.sum()) / len(sent),
        recall=hits / max(1, int(labels.sum())),
        precision=hits / int(sent.sum()) if sent.any() else 1.0,
    )


def ranking(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """The probability that a positive's score is above a negative's (AUC); ties count half."""
    positives, negatives = scores[labels], scores[~labels].sort().values
    below = torch.searchsorted(negatives, positives).double()
    not_above = torch.searchsorted(negatives, positives, right=True).double()
    return float(((below + not_above) / 2).mean() / len(negatives))


def unweighted(scores: torch.Tensor, positive_weight: float) -> torch.Tensor:
    """Scores as probabilities: a loss that counts positives w times makes odds w times too high."""
    scores = scores.double()
    return scores / (scores + positive_weight * (1 - scores))


def calibration(probabilities: torch.Tensor, labels: torch.Tensor, bins: int = 20) -> list[Bin]:
    """Predicted and observed rates, by bins with equally many positives each."""
    order = probabilities.argsort(descending=True, stable=True)
    ranks = labels[order].long().cumsum(0)
    numbers = ((ranks - 1).clamp(min=0) * bins).div(int(ranks[-1]), rounding_mode="floor")
    found = []
    for number in numbers.unique().tolist():
        members = order[numbers == number]
        predicted = float(probabilities[members].mean())
        found.append(Bin(len(members), predicted, float(labels[members].double().mean())))
    return found
