"""Thresholds are found in a few probes, whichever way the share goes."""

from __future__ import annotations

import math

import pytest
from quality_tuning import CLOSE, PROBES, Scale, tune

TARGETS = (0.02, 0.05, 0.10)


class Probe:
    def __init__(self, share: object) -> None:
        self.share, self.asked = share, []

    def __call__(self, threshold: float) -> float:
        self.asked.append(threshold)
        return self.share(threshold)


@pytest.mark.parametrize(
    ("scale", "share"),
    [
        (Scale("log", 1e-3, 2.0), lambda tau: 0.01 * tau**-0.6),
        (Scale("root", 0.0, 2.0), lambda tau: 0.2 * math.exp(-3.5 * tau**0.5)),
        (Scale("logit", 1e-3, 0.999), lambda tau: 0.3 * (1 - tau) ** 1.5),
        (Scale("linear", 1.5, 2.25), lambda tau: (2.25 - tau) ** 3),
        (Scale("linear", 1.5, 2.25), lambda tau: 1 / (1 + math.exp(30 * (tau - 1.9)))),
        (Scale("log", 1e-4, 1.0, rises=True), lambda p: p),
    ],
)
def test_every_share_is_found(scale: Scale, share: object) -> None:
    probe = Probe(share)
    found = tune(probe, TARGETS, scale, {})
    assert len(probe.asked) <= PROBES * len(TARGETS)
    assert {target: share(found[target]) for target in TARGETS} == pytest.approx(
        {target: target for target in TARGETS}, rel=2 * CLOSE
    )


def test_what_is_known_is_not_measured_again() -> None:
    probe = Probe(lambda p: p)
    known = {0.0505: 0.0505}
    assert tune(probe, [0.05], Scale("log", 1e-4, 1.0, rises=True), known) == {0.05: 0.0505}
    assert probe.asked == []


def test_a_share_that_no_threshold_has_is_left_out() -> None:
    least = Probe(lambda tau: max(0.09, 1 - tau))
    assert list(tune(least, [0.02, 0.10], Scale("linear", 0.0, 1.0), {})) == [0.10]
