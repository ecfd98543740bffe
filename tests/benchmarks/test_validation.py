"""Verdicts of the validation: what passes, what fails, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from intervals import Blocks
from validation import Cell, best_threshold, record, table, within
from validation_plot import plot
from validation_runs import Deployment, minutes

WAVE = numpy.tile([0.9, 1.1], 12)
"""Seconds of blocks, 1 on average."""


def cell(threshold: int, speed: float, nominal: float, wave: float = 0.0) -> Cell:
    seconds = (1.0 + wave * (WAVE - 1.0)) / speed
    return Cell(3, threshold, Blocks(100, 0, seconds), (6.25, 28.0), {"nominal": nominal})


def test_the_worst_cell_decides() -> None:
    cells = [cell(1, 0.96, 100.0), cell(2, 1.03, 100.0)]
    verdict = within(cells, "nominal", 0.05)
    assert verdict.passed
    assert str(verdict) == (
        "PASS  within 5.0% of the nominal prediction: -4.0% at worst (N = 3, threshold 1)"
    )
    assert not within(cells, "nominal", 0.035).passed
    assert not within([cell(1, 1.04, 100.0)], "nominal", 0.035).passed


def test_a_prediction_that_is_no_number_passes_nothing() -> None:
    assert not within([cell(1, 1.0, float("nan"))], "nominal", 0.05).passed


def test_the_best_threshold_must_be_the_predicted_one() -> None:
    right = [cell(1, 1.0, 100.0), cell(2, 1.1, 108.0), cell(3, 1.05, 104.0)]
    assert best_threshold(right, "nominal", 3, noise=False).passed
    wrong = [cell(1, 1.0, 100.0), cell(2, 1.1, 104.0), cell(3, 1.05, 108.0)]
    verdict = best_threshold(wrong, "nominal", 3, noise=False)
    assert not verdict.passed
    assert "N = 3: best threshold measured 2, nominal prediction 3" in verdict.what
    assert not best_threshold(wrong, "nominal", 3, noise=True).passed


@pytest.mark.parametrize(("gap", "passed"), [(0.005, True), (0.2, False)])
def test_a_loss_inside_the_noise_may_be_forgiven(gap: float, passed: bool) -> None:
    cells = [cell(1, 1.0, 108.0, wave=1.0), cell(2, 1.0 + gap, 104.0, wave=-1.0)]
    assert best_threshold(cells, "nominal", 3, noise=True).passed is passed
    assert not best_threshold(cells, "nominal", 3, noise=False).passed


def test_how_long_it_takes() -> None:
    deployment = Deployment([], 0, seconds=110.0, warm_up_s=6.0, hop_ms=0.0, nice=0)
    assert minutes(deployment, [3, 4]) == pytest.approx(7 * 120 / 60)


def test_report(tmp_path: Path) -> None:
    cells = [cell(1, 1.0, 100.0, wave=1.0), cell(2, 1.1, 108.0)]
    first, second = table(cells).splitlines()[1:]
    assert first.split() == ["3", "1", "100.0", "+-", "2.1", "6.25", "/", "28.00", "100.0", "1.000"]
    assert second.split()[-2:] == ["108.0", "1.019"]
    written = record(cells, [within(cells, "nominal", 0.05)])
    assert written["cells"][1]["tokens_per_s"] == pytest.approx(110.0)
    assert written["verdicts"][0]["passed"] is True
    plot(cells, "nominal", tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
