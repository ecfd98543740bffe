"""R2R's rule."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Decision, Request, Step
from tokenrouter.schedulers.r2r import LARGE, R2R, SMALL
from tokenrouter.schedulers.registry import create
from tokenrouter.schedulers.signals import RouterScore, Scored

AT_SMALL, AT_LARGE = Request([1], 1, SMALL), Request([1], 1, LARGE)
KEEP, ASK = Decision(1, SMALL), Decision(0, LARGE)
SAVED = 0.4


@pytest.fixture
def router(tmp_path: Path) -> Path:
    path = tmp_path / "router.pt"
    path.touch()
    return path


def decide(router: Path, score: float, threshold: float | None = None) -> Decision:
    scheduler = R2R(["s", "l"], threshold, router=str(router))
    return scheduler.route(AT_SMALL, Step((9,), {"router_score": Scored(score, SAVED)}))


def test_a_critical_token_is_the_large_models_and_equality_is_critical(router: Path) -> None:
    assert decide(router, 0.3999) == KEEP
    assert decide(router, 0.4) == ASK
    assert decide(router, 1.0) == ASK


def test_the_saved_threshold_can_be_overridden(router: Path) -> None:
    assert decide(router, 0.6, 0.7) == KEEP
    assert decide(router, 0.7, 0.7) == ASK
    assert decide(router, 0.1, 0.1) == ASK
    assert decide(router, 0.0, 0.0) == ASK


def test_what_is_not_a_number_goes_to_the_large_model(router: Path) -> None:
    assert decide(router, math.nan) == ASK
    assert decide(router, math.nan, 1.0) == ASK


def test_the_large_model_writes_one_token_and_hands_back(router: Path) -> None:
    assert R2R(["s", "l"], router=str(router)).route(AT_LARGE, Step((9,), {})) == KEEP


def test_only_the_small_model_is_scored(router: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(router.parent)
    scheduler = create("r2r", ["s", "l"], None, {"router": "router.pt"})
    assert list(scheduler.signals(SMALL)) == [RouterScore(str(router))]
    assert list(scheduler.signals(LARGE)) == []


def test_it_needs_a_router_that_is_there(router: Path) -> None:
    with pytest.raises(ConfigError, match=r"algorithm_args\.router: got ''; give the path of"):
        create("r2r", ["s", "l"])
    with pytest.raises(ConfigError, match=r"algorithm_args\.router: .*gone does not exist"):
        create("r2r", ["s", "l"], None, {"router": str(router) + "gone"})
    with pytest.raises(ConfigError, match=r"algorithm_args\.router: .*cannot be used"):
        create("r2r", ["s", "l"], None, {"router": "a" * 5000})
    with pytest.raises(ConfigError, match="from 0 to 1"):
        create("r2r", ["s", "l"], 1.1, {"router": str(router)})
    with pytest.raises(ConfigError, match="between 2 models"):
        create("r2r", ["s"], None, {"router": str(router)})
