"""Which threshold vector is best: the highest throughput, or that within a limit on gaps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tokenrouter.configuration.values import Objective
from tokenrouter.throughput_model.parameters import Prediction, Thresholds

NOISE = 2.0
"""Standard errors by which throughputs must differ to be told apart."""
SAME = 1e-9
"""Relative difference of throughputs that is rounding."""


def choose(
    predictions: Sequence[Prediction], p99_ms: Callable[[Thresholds], float], objective: Objective
) -> tuple[Prediction, bool]:
    """The best of ``predictions`` of one concurrency, and whether it meets the objective.

    With a limit on the 99th percentile of gaps, which ``p99_ms`` tells, the highest throughput
    within it; if nothing is within, the lowest percentile. Thresholds of 1 are best if nothing
    can be told to be better; of what is the same, the lowest are.
    """
    limit = limit_ms(objective)
    gaps = {each.thresholds: p99_ms(each.thresholds) for each in predictions if limit < math.inf}
    within = [each for each in predictions if gaps.get(each.thresholds, 0.0) <= limit]
    if within:
        return _fastest(within), True
    return min(predictions, key=lambda each: (gaps[each.thresholds], -each.tokens_per_s)), False


def limit_ms(objective: Objective) -> float:
    """What 99 % of the gaps may last at most; infinite for throughput alone."""
    return math.inf if objective == "throughput" else objective["itl_p99_ms"]


def _fastest(predictions: Sequence[Prediction]) -> Prediction:
    highest = max(predictions, key=lambda each: each.tokens_per_s)
    noise = max(NOISE * highest.stderr, SAME * highest.tokens_per_s)
    for each in predictions:
        if max(each.thresholds) == 1 and each.tokens_per_s >= highest.tokens_per_s - noise:
            return each
    same = [
        each for each in predictions if each.tokens_per_s >= (1.0 - SAME) * highest.tokens_per_s
    ]
    return min(same, key=lambda each: sum(each.thresholds))
