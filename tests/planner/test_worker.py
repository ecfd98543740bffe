"""Solving in a thread that others never wait for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.planner import solving
from tokenrouter.planner.worker import LOWEST, Worker

PROBLEM: Any = object()


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


def test_measurements_that_make_no_system_are_told_and_nothing_else_is_hidden(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(problem: Any) -> Any:
        raise ConfigError("large: no step was measured")

    def break_down(problem: Any) -> Any:
        raise ZeroDivisionError("a bug")

    assert result(monkeypatch, refuse) == (None,)
    assert "no thresholds for what was measured: large: no step was measured" in caplog.text
    with pytest.raises(ZeroDivisionError):
        result(monkeypatch, break_down)
