"""What is told of an algorithm before any request."""

from __future__ import annotations

from typing import Any

import pytest

from tokenrouter.errors import ConfigError, Terminated
from tokenrouter.schedulers import registry
from tokenrouter.schedulers.base import RoutingScheduler
from tokenrouter.schedulers.hindsight import Hindsight
from tokenrouter.schedulers.signals import Entropy
from tokenrouter.schedulers.single import Single
from tokenrouter.schedulers.trial import check_hooks, declared


class Asked(Single):
    """Returns ``answer`` as its signals, or raises it."""

    answer: Any = None

    def signals(self, member: int) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def asked(answer: Any) -> Asked:
    made = Asked(["a", "b"])
    made.answer = answer
    return made


def test_signals_in_any_collection() -> None:
    assert declared(asked((Entropy(),)), "mine", 0) == [Entropy()]
    assert declared(asked({Entropy()}), "mine", 1) == [Entropy()]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "TypeError: 'NoneType' object is not iterable"),
        (Entropy(), "TypeError: 'Entropy' object is not iterable"),
        (["entropy"], "TypeError: unknown signal 'entropy'"),
        ([Entropy], "TypeError: unknown signal <class"),
        (ValueError("boo"), "ValueError: boo"),
        (SystemExit(4), "SystemExit: 4"),
    ],
)
def test_other_signals_name_the_algorithm_and_the_hook(answer: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"^algorithm: mine: signals\(1\) failed: {said}"):
        declared(asked(answer), "mine", 1)


def test_sigterm_is_no_mistake() -> None:
    with pytest.raises(Terminated):
        declared(asked(Terminated(0)), "mine", 0)


class Short(Single):
    def route(self, request: Any) -> Any:  # type: ignore[override]
        return None


class Nameless(Single):
    def signals(self) -> Any:  # type: ignore[override]
        return []


class Static(Single):
    """Other names, defaults and static methods are fine."""

    @staticmethod
    def start(*anything: Any) -> None:  # type: ignore[override]
        return None

    def send(self, a: Any, b: Any, c: Any, d: Any = None) -> bytes:
        return b""


def test_hooks_that_take_something_else_are_told() -> None:
    with pytest.raises(ConfigError, match=r"mine: route must take \(self, request, step\): too"):
        check_hooks(Short(["a", "b"]), "mine")
    with pytest.raises(ConfigError, match=r"mine: signals must take \(self, member\)"):
        check_hooks(Hindsight(Nameless(["a", "b"])), "mine")
    check_hooks(Static(["a", "b"]), "mine")
    check_hooks(RoutingScheduler(["a", "b"]), "base")
    check_hooks(
        registry.create("query", ["a", "b"], None, {"then": {"algorithm": "bild"}}), "query"
    )
