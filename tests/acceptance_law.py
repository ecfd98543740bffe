"""The laws of speculative sampling and cascades, written as the papers do: one position, lists."""

from __future__ import annotations

from collections.abc import Sequence

from tokenrouter.schedulers.signals import Acceptance

Law = Sequence[float]


def target_of(rule: Acceptance, p: Law, q: Law, p1: Law, q1: Law) -> list[float]:
    """pi, from the laws as sampled and those at temperature 1."""
    alpha = rule.alpha
    if rule.kind == "exact":
        return list(p)
    if rule.kind in ("chow", "diff", "opt"):
        distance = sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2
        least = {"chow": 1 - alpha, "diff": max(p1) - alpha, "opt": max(p1) - alpha * distance}
        return list(p if max(q1) < least[rule.kind] else q)
    tokens = range(len(p))
    top = max(p1)
    accepted = {
        "token_v1": {v for v in tokens if q1[v] >= top - alpha},
        "token_v2": {v for v in tokens if p1[v] >= top - alpha},
        "token_v3": {v for v in tokens if p1[v] >= (1 - alpha) * top},
    }[rule.kind]
    left = 1 - sum(q[v] for v in accepted)
    return [(q[v] if v in accepted else 0.0) + left * p[v] for v in tokens]
