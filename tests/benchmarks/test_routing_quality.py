"""What is measured with which problems, and what becomes of what cannot be."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import routing_quality
from quality_methods import LARGE, SMALL, Job, Method
from quality_points import Point
from quality_runs import OutOfTime
from quality_tuning import Scale
from routing_quality import Sizes, measure, report

from tests.benchmarks.quality import PROBLEMS, point
from tokenrouter.errors import ConfigError

SIZES = Sizes(PROBLEMS, PROBLEMS // 2, 100)
STRAIGHT = Scale("log", 1e-3, 1.0, rises=True)


class FakeLab:
    """Its share is the threshold, from 0.04 on; ``late`` and ``broken`` are names of methods."""

    def __init__(self, late: str = "", broken: str = "") -> None:
        self.late, self.broken = late, broken
        self.asked: list[tuple[str, str, int]] = []

    def measure(
        self, method: Method, threshold: float | None, split: str, count: int, target: Any = None
    ) -> Point:
        self.asked.append((method.name, split, count))
        if method.name == self.late:
            raise OutOfTime
        if method.name == self.broken:
            raise ConfigError("algorithm: unknown")
        share = float(method is LARGE) if threshold is None else max(threshold, 0.04)
        found = point(method.name, 0.5 + share / 2, share, target)
        return replace(found.first(count), threshold=threshold, seconds=1.0, target=target)

    def streaming(self, method: Method, threshold: float | None) -> dict[str, float]:
        return {"first_ms": 1.0, "chunk_tokens": 1.0, "longest_chunk": 1.0}


ALONE = (Job(SMALL, claimed=True), Job(LARGE, claimed=True))
TUNED = Method("tuned", "random", scale=STRAIGHT)


def test_claims_are_on_all_problems_and_others_on_fewer() -> None:
    lab = FakeLab()
    found = measure(lab, [*ALONE, Job(TUNED, (0.05,)), Job(TUNED, (0.10,), claimed=True)], SIZES)
    judged = [each for each in lab.asked if each[1] == "judging"]
    assert judged == [
        ("small", "judging", PROBLEMS),
        ("large", "judging", PROBLEMS),
        ("tuned", "judging", PROBLEMS // 2),
        ("tuned", "judging", PROBLEMS),
    ]
    assert {each[2] for each in lab.asked if each[1] == "thresholds"} == {50, 100}
    assert [each.target for each in found.curves["tuned"]] == [0.05, 0.10]
    assert found.missing == {}


def test_what_cannot_be_measured_is_told_and_the_rest_goes_on() -> None:
    lab = FakeLab(late="late", broken="broken")
    late, broken = Method("late", "random"), Method("broken", "random")
    jobs = [Job(late), Job(broken), Job(broken), Job(TUNED, (0.02, 0.05)), *ALONE]
    found = measure(lab, jobs, SIZES)
    assert list(found.curves) == ["tuned", "small", "large"]
    assert found.missing["broken"] == "algorithm: unknown"
    assert found.missing["tuned at 2%"] == "no threshold has this share"
    assert [name for name, *_ in lab.asked].count("broken") == 1


def test_everything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        routing_quality, "token_oracle", lambda asked: point("token oracle", 1.0, 0.008)
    )
    found = measure(FakeLab(), [*ALONE, Job(TUNED, (0.05,), claimed=True)], SIZES)
    files = argparse.Namespace(json=tmp_path / "quality.json", plot=tmp_path / "quality.png")
    assert not report(found, SIZES, files), "r2r was not measured"
    told = capsys.readouterr().out
    assert "| tuned | 0.0" in told and "FAIL  r2r keeps 99%" in told
    written = json.loads(files.json.read_text())
    assert {each["method"] for each in written["points"]} >= {"tuned", "token oracle"}
    assert files.plot.exists()
