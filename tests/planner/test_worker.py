"""Solving in a thread that others never wait for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.planner import solving
from tokenrouter.planner.problem import Problem, Terms
from tokenrouter.planner.worker import LOWEST, Worker

PROBLEM = Problem(Terms(("a", "b"), (8, 8), {}, [(1, 1)]), [], 5, [(1, 1)])


def result(monkeypatch: pytest.MonkeyPatch, solve: Callable[[Any], Any]) -> Any:
    """What the worker has once it says so."""
    monkeypatch.setattr(solving, "solve", solve)
    done = threading.Event()
    worker = Worker(done.set)
    assert worker.take() is None
    worker.give(PROBLEM)
    assert done.wait(20)
    found = worker.take()
    assert worker.take() is None, "once"
    return found


def test_a_solution_comes_from_a_thread_of_the_lowest_priority(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)

    def solve(problem: Any) -> Any:
        return problem, os.getpriority(os.PRIO_PROCESS, 0)

    assert result(monkeypatch, solve) == ((PROBLEM, LOWEST),)
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def test_what_cannot_be_solved_is_told_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(problem: Any) -> Any:
        raise ConfigError("large: no step was measured")

    def break_down(problem: Any) -> Any:
        raise ZeroDivisionError("a bug")

    assert result(monkeypatch, refuse) == (None,)
    assert "no thresholds for what was measured: large: no step was measured" in caplog.text
    assert "Traceback" not in caplog.text
    assert result(monkeypatch, break_down) == (None,)
    assert "no thresholds, as the solver failed for 5 live requests" in caplog.text
    assert "ZeroDivisionError: a bug" in caplog.text


def test_the_thread_is_there_before_the_first_problem() -> None:
    before = {each.ident for each in threading.enumerate()}
    worker = Worker(lambda: None)
    assert worker.take() is None
    assert len({each.ident for each in threading.enumerate()} - before) == 1
