"""What commands say of their progress where stderr is no terminal."""

from __future__ import annotations

import pytest

from tokenrouter import cli_progress
from tokenrouter.cli_progress import progress_bars


def work(shown: bool, lines: bool) -> None:
    with progress_bars(shown, lines) as bars:
        task = bars.add_task("answers", total=3)
        for _ in range(3):
            bars.advance(task)
        bars.remove_task(task)
        task = bars.add_task("fitting", total=50, completed=2)
        bars.update(task, advance=1, description="fitting: loss 0.5")


def test_a_line_when_a_stage_begins_and_no_more_for_a_while(
    capsys: pytest.CaptureFixture[str],
) -> None:
    work(shown=True, lines=True)
    assert capsys.readouterr().err.splitlines() == ["answers (0 of 3)", "fitting (2 of 50)"]


def test_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_progress, "LINE_EVERY_S", 0.0)
    work(shown=True, lines=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:4] == [f"answers ({done} of 3)" for done in range(4)]
    assert lines[4:] == ["fitting (2 of 50)", "fitting: loss 0.5 (3 of 50)"]


def test_a_line_for_what_is_tracked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_progress, "LINE_EVERY_S", 0.0)
    with progress_bars(shown=True, lines=True) as bars:
        for done in bars.track(range(3), description="judging"):
            assert capsys.readouterr().err == f"judging ({done} of 3)\n"


@pytest.mark.parametrize(("shown", "lines"), [(False, True), (True, False)])
def test_nothing_where_it_is_not_wanted(
    capsys: pytest.CaptureFixture[str], shown: bool, lines: bool
) -> None:
    work(shown, lines)
    assert capsys.readouterr().err == ""
