"""R2R's neural_rolling rule, against a literal reading of its definition."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Decision, Request, Step
from tokenrouter.schedulers.neural_rolling import NeuralRolling
from tokenrouter.schedulers.r2r import LARGE, SMALL
from tokenrouter.schedulers.registry import create
from tokenrouter.schedulers.signals import RouterScore, Scored


def make(tmp_path: Path, threshold: float | None = None, **args: int) -> NeuralRolling:
    (tmp_path / "router.pt").touch()
    made = create(
        "neural_rolling", ["s", "l"], threshold, {"router": str(tmp_path / "router.pt"), **args}
    )
    assert isinstance(made, NeuralRolling)
    return made


def writers(scheduler: NeuralRolling, scores: list[float], saved: float = 0.5) -> list[int]:
    """Who writes each position; the small model's scores there are given."""
    request = Request([1], 1, SMALL)
    request.state = scheduler.start(request)
    written = []
    for score in scores:
        decision = scheduler.route(request, Step((9,), {"router_score": Scored(score, saved)}))
        assert decision in (Decision(1, SMALL), Decision(0, LARGE))
        written.append(decision.to)
        if decision.to == LARGE:
            back = scheduler.route(Request([1], 1, LARGE), Step((9,), {}))
            assert back == Decision(1, SMALL)
    return written


def defined(scores: list[float], tau: float, size: int) -> list[int]:
    """The same from the definition, with nothing kept but the whole past."""
    written: list[int] = []
    begun = 0  # where the window begins
    for i, score in enumerate(scores):
        if i == 0 or written[-1] == LARGE:
            window = scores[max(begun, i + 1 - size) : i + 1]
            written.append(SMALL if sum(window) / len(window) < tau else LARGE)
        else:
            written.append(SMALL if score < tau else LARGE)
            begun = i
    return written


@pytest.mark.parametrize("size", [1, 3, 5])
def test_it_is_the_definition(size: int, tmp_path: Path) -> None:
    rng = random.Random(size)
    scheduler = make(tmp_path, 0.5, window=size)
    for _ in range(50):
        scores = [rng.random() for _ in range(40)]
        assert writers(scheduler, scores) == defined(scores, 0.5, size)


def test_an_example(tmp_path: Path) -> None:
    # The window: .1 / taken over at .8: .8 / .8 .4 / .8 .4 .2, below / stays / .6 anew
    scores = [0.1, 0.8, 0.4, 0.2, 0.2, 0.6]
    assert writers(make(tmp_path), scores) == [SMALL, LARGE, LARGE, SMALL, SMALL, LARGE]
    assert writers(make(tmp_path, 0.15), scores) == [SMALL] + [LARGE] * 5


def test_a_first_score_that_is_critical_begins_on_the_large_model(tmp_path: Path) -> None:
    assert writers(make(tmp_path), [0.9, 0.2, 0.2]) == [LARGE, LARGE, SMALL]


def test_what_is_not_a_number_goes_to_the_large_model(tmp_path: Path) -> None:
    assert writers(make(tmp_path), [0.1, math.nan, 0.1]) == [SMALL, LARGE, LARGE]


def test_requests_have_windows_of_their_own(tmp_path: Path) -> None:
    scheduler = make(tmp_path)
    one, other = (Request([1], 1, SMALL) for _ in range(2))
    one.state, other.state = scheduler.start(one), scheduler.start(other)
    for score in (0.9, 0.9, 0.9):
        scheduler.route(one, Step((9,), {"router_score": Scored(score, 0.5)}))
    decision = scheduler.route(other, Step((9,), {"router_score": Scored(0.4, 0.5)}))
    assert decision == Decision(1, SMALL)


def test_arguments(tmp_path: Path) -> None:
    scheduler = make(tmp_path)
    assert list(scheduler.signals(SMALL)) == [RouterScore(str(tmp_path / "router.pt"))]
    assert list(scheduler.signals(LARGE)) == []
    for window in (0, 2.5):
        with pytest.raises(
            ConfigError, match=r"algorithm_args\.window: must be a whole number of at least 1"
        ):
            make(tmp_path, window=window)  # type: ignore[arg-type]
