"""What operators ask of a member: done between steps, and never under a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tokenrouter.errors import RequestError
from tokenrouter.ipc.operations import Control, Controlled
from tokenrouter.subserver.controls import carry_out
from tokenrouter.subserver.timed import TimedEngine, step_law


class Engine(TimedEngine):
    """Notes what it is told; fails for ``bad``."""

    def __init__(self) -> None:
        super().__init__(step_law(0), [1], 10, 1)
        self.told: list[tuple[str, Mapping[str, Any]]] = []

    def control(self, action: str, arguments: Mapping[str, Any]) -> str:
        self.told.append((action, arguments))
        if arguments.get("bad"):
            raise RequestError("bad: is bad")
        return "done"


def test_an_empty_member_does_it() -> None:
    engine = Engine()
    answer = carry_out(engine, 1, 0, Control(7, "update_weights_from_disk", {"model_path": "x"}))
    assert answer == Controlled(7, 1, True, "done")
    assert engine.told == [("update_weights_from_disk", {"model_path": "x"})]


@pytest.mark.parametrize("action", ["flush_cache", "update_weights_from_disk"])
def test_a_member_that_holds_requests_does_nothing(action: Any) -> None:
    engine = Engine()
    answer = carry_out(engine, 0, 3, Control(7, action, {}))
    assert (answer.busy, answer.success, engine.told) == (True, False, [])
    assert "3 requests" in answer.message


@pytest.mark.parametrize("action", ["start_profile", "stop_profile"])
def test_a_profile_is_of_a_busy_member(action: Any) -> None:
    engine = Engine()
    assert carry_out(engine, 0, 3, Control(7, action, {})).success


def test_a_failure_is_an_answer() -> None:
    answer = carry_out(Engine(), 2, 0, Control(7, "start_profile", {"bad": True}))
    assert answer == Controlled(7, 2, False, "bad: is bad")


def test_a_timed_member_has_nothing_to_act_on() -> None:
    engine = TimedEngine(step_law(0), [1], 10, 1)
    assert carry_out(engine, 0, 0, Control(1, "flush_cache", {})).success
    for action in ("start_profile", "stop_profile", "update_weights_from_disk"):
        answer = carry_out(engine, 0, 0, Control(1, action, {}))
        assert not answer.success
        assert "timed" in answer.message
