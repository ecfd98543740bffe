"""What runs in a given time, in which order, and how it is told."""

from __future__ import annotations

import pytest
from budget import Cell, Outcome, in_turns, record, run, summary
from validation import Verdict


class Clock:
    """Time passes only while a cell runs."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def cell(self, what: str, seconds: float, real: float, passed: bool = True) -> Cell:
        def work() -> list[Verdict]:
            self.now += real
            return [Verdict(f"found {what}", passed)]

        return Cell("part", what, seconds, work)


def outcomes() -> list[Outcome]:
    clock = Clock()
    cells = [
        clock.cell("first", 10, 20),
        clock.cell("long", 50, 50),
        clock.cell("short", 10, 20, passed=False),
    ]
    return list(run(cells, 60.0, clock))


def test_parts_take_turns() -> None:
    one = [Clock().cell(f"a{i}", 1, 1) for i in range(3)]
    other = [Clock().cell("b0", 1, 1)]
    assert [cell.what for cell in in_turns([one, other])] == ["a0", "b0", "a1", "a2"]


def test_what_does_not_fit_is_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    first, long, short = outcomes()
    assert (first.passed, first.seconds) == (True, 20.0)
    assert long.verdicts is None and not long.passed, "twice 50 s are more than the 40 s left"
    assert short.verdicts and not short.passed
    said = capsys.readouterr().out
    assert "part first: about 0.2 min of 1 to go" in said
    assert "part long: no time" in said
    assert "part short: about 0.3 min of 0 to go" in said


def test_the_summary_tells_what_was_not_measured() -> None:
    assert summary(outcomes()).splitlines()[2:] == [
        "| part | first | found first | holds |",
        "| part | long | not measured: no time | |",
        "| part | short | found short | FAILS |",
    ]
    _, long, short = record(outcomes())
    assert long["verdicts"] is None
    assert short["verdicts"] == [{"what": "found short", "passed": False}]
