"""How what a hook raised is told."""

from __future__ import annotations

from tokenrouter.schedulers.mistakes import failure


class UntoldError(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


def test_the_algorithm_and_the_hook_are_named() -> None:
    said = failure("mine:Mine", "route", ValueError("boo"))
    assert said == "algorithm 'mine:Mine': route failed: ValueError: boo"


def test_what_cannot_be_written_is_told_all_the_same() -> None:
    said = failure("mine", "send", UntoldError())
    assert said.endswith("UntoldError: its text cannot be had for KeyError")
    assert failure("mine", "send", ValueError("\ud800")).endswith("ValueError: \\ud800")
