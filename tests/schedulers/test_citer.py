"""CITER's rule."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Decision, Request, Step
from tokenrouter.schedulers.citer import LARGE, SMALL, Citer
from tokenrouter.schedulers.registry import create
from tokenrouter.schedulers.signals import CiterConfidence

KEEP, ASK = Decision(1, SMALL), Decision(0, LARGE)


def make(tmp_path: Path, threshold: float | None = None) -> Citer:
    (tmp_path / "head.pt").touch()
    made = create("citer", ["s", "l"], threshold, {"head": str(tmp_path / "head.pt")})
    assert isinstance(made, Citer)
    return made


def test_low_confidence_goes_to_the_large_model(tmp_path: Path) -> None:
    def decide(confidence: float, threshold: float | None = None) -> Decision:
        step = Step((9,), {"citer_confidence": confidence})
        return make(tmp_path, threshold).route(Request([1], 1, SMALL), step)

    assert decide(0.95) == KEEP
    assert decide(0.9499) == ASK
    assert decide(0.8, 0.8) == KEEP
    assert decide(0.79, 0.8) == ASK
    assert decide(math.nan) == ASK
    assert decide(0.0, 0.0) == KEEP


def test_the_large_model_writes_one_token_and_hands_back(tmp_path: Path) -> None:
    assert make(tmp_path).route(Request([1], 1, LARGE), Step((9,), {})) == KEEP


def test_arguments(tmp_path: Path) -> None:
    assert list(make(tmp_path).signals(SMALL)) == [CiterConfidence(str(tmp_path / "head.pt"))]
    assert list(make(tmp_path).signals(LARGE)) == []
    with pytest.raises(ConfigError, match=r"algorithm_args\.head: .* give the path of a trained"):
        create("citer", ["s", "l"])
