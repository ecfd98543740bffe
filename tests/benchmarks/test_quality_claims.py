"""Claims hold where they do, fail where they do not, and say what was not measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from quality_claims import Claims, with_bounds
from quality_points import Point

from tests.benchmarks.quality import PROBLEMS, point

CURVES = {
    "small": [point("small", 0.5, 0.0)],
    "large": [point("large", 1.0, 1.0)],
    "entropy": [
        point("entropy", accuracy, share, share)
        for accuracy, share in ((0.7, 0.02), (0.9, 0.05), (0.985, 0.1), (1.0, 0.15))
    ],
    "r2r": [
        point("r2r", accuracy, share, share)
        for accuracy, share in ((0.8, 0.02), (0.97, 0.05), (1.0, 0.1))
    ],
    "random": [point("random", 0.5, 0.02, 0.02), point("random", 0.5, 0.05, 0.05)],
    "entropy + verify": [point("entropy + verify", 0.995, 0.03, 0.03)],
}
ORACLE = replace(point("token oracle", 1.0, 0.008), seconds=0.0)


def told(curves: dict[str, list[Point]]) -> list[str]:
    claims = Claims(with_bounds(curves, ORACLE), PROBLEMS, draws=200)
    return [str(each) for each in claims.verdicts()]


def test_all_hold() -> None:
    verdicts = told(CURVES)
    assert len(verdicts) == 13
    assert [each for each in verdicts if not each.startswith("PASS")] == []
    assert "at a share of 0.0833" in verdicts[1] and "entropy does at 0.1167" in verdicts[2]


@pytest.mark.parametrize(
    ("method", "points", "fails"),
    [
        ("small", [point("small", 0.7, 0.0)], "small model alone: 0.7"),
        ("r2r", [point("r2r", 1.0, 0.2, 0.02)], "r2r keeps 99%"),
        ("entropy", [point("entropy", 1.0, 0.02, 0.02)], "r2r less entropy at 2%"),
        ("random", [point("random", 0.97, 0.05, 0.05)], "r2r less random at 5%"),
        ("entropy + verify", [point("entropy + verify", 0.98, 0.03)], "entropy + verify keeps"),
        ("cascade", [point("cascade", 0.9, 0.002)], "nothing above the token oracle"),
    ],
)
def test_what_does_not_hold_fails(method: str, points: list[Point], fails: str) -> None:
    verdicts = told({**CURVES, method: points})
    assert any(each.startswith(f"FAIL  {fails}") for each in verdicts), verdicts


def test_what_was_not_measured_is_no_pass() -> None:
    only = {name: CURVES[name] for name in ("small", "large")}
    missing = [each for each in told(only) if each.endswith("not measured")]
    assert len(missing) == 10 and all(each.startswith("FAIL") for each in missing)
