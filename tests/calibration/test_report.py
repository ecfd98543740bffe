"""How a calibration is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.calibration.fakes import pair
from tests.calibration.test_findings import FACTS, measured
from tokenrouter.calibration import report
from tokenrouter.calibration.bisection import Answer, Point
from tokenrouter.calibration.findings import find
from tokenrouter.calibration.result import Advice, Result, Shares
from tokenrouter.calibration.windows import Window
from tokenrouter.throughput_model.parameters import Prediction
from tokenrouter.throughput_model.planning.outlook import Outlook, Row, Tail

pytestmark = pytest.mark.timeout(60)

SHARES = Shares(
    [Answer(0.1, 0.25, 0.09, 0.01, "jump"), Answer(0.4, 1.0, 0.3, 0.02, "beyond")],
    [Point(0.25, 0.09, 0.01, 900), Point(1.0, 0.3, 0.02, 900)],
)


ONES = 187.2
"""Tokens a second by thresholds of 1."""


def row(thresholds: tuple[int, int], tokens_per_s: float, stderr: float = 0.0) -> Row:
    no = (0.0, 0.0)
    prediction = Prediction(4, thresholds, tokens_per_s, "exact", 14, stderr, no, no, no)
    return Row(prediction, Tail(5.0, 60.0, no, 0.0), 0.9, tokens_per_s / ONES - 1.0, 0.2)


def advice(window: Window, *rows: Row, predicted: float | None = ONES) -> Advice:
    rows = rows or (row((1, 3), 208.04),)
    return Advice(window, predicted, Outlook(4, rows, rows[0], True, 10, 230.0, None, ONES, 180.0))


def window(thresholds: tuple[int, ...] | None) -> Window:
    """Of 185.5 tokens a second."""
    members = (pair(4.0, 700, 42), pair(4.0, 0, 42))
    return Window(4, (members[0][0], members[1][1]), thresholds, (184.5, 186.5))


def result(**changes: Any) -> Result:
    findings = find(FACTS, measured(pair(0.0, 0, 0), pair(9.0, 700, 300)))
    told = [advice(window((1, 1)))]
    parts = {"findings": findings, "advice": told, "shares": SHARES, "wrote": Path("p.yaml")}
    return Result(FACTS, 16, None, **{**parts, **changes})


def test_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    report.show(result())
    said = capsys.readouterr().out
    assert said.startswith("demo: random at 0.3, 16 prompts\n")
    assert "for 0.1: router_threshold: 0.25 gives 9.00% ± 1.00% (the share jumps here" in said
    assert "for 0.4: router_threshold: 1 gives 30.00% ± 2.00% (out of reach" in said
    rows = [" ".join(line.split("│")).split() for line in said.splitlines() if "│" in line]
    assert ["small", "1", "1000", "6.00", "±", "0.00", "6.00", "1.00"] in rows
    assert ["small", "large", "0.300", "±", "0.014", "0.00", "1.00"] in rows
    assert ["4", "1,1", "185.5", "±", "1.0", "187.2", "1,3", "208.0", "11.1%"] in rows
    assert "--threshold small=1 large=3," in said
    assert "tokenrouter plan p.yaml tells more" in said
    assert max(map(len, said.splitlines()[:-2])) <= report.FILE_WIDTH


def test_thresholds_that_changed(capsys: pytest.CaptureFixture[str]) -> None:
    report.show(result(advice=[advice(window(None))], wrote=None))
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines()[:-1])) <= report.FILE_WIDTH
    assert "various: thresholds changed meanwhile" in said and "p.yaml" not in said
    report.show(result(advice=[advice(window((4, 1)), predicted=None)]))
    assert "the thresholds in force are not among those" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "thresholds"),
    [
        ([row((3, 1), 190.0), row((1, 1), ONES)], (1, 1)),
        ([row((3, 1), 208.0), row((1, 2), 207.9), row((1, 1), ONES)], (1, 2)),
        ([row((3, 1), 208.0), row((1, 2), 204.0), row((1, 1), ONES)], (3, 1)),
        ([row((3, 1), 208.0, 1.0), row((1, 2), 204.0, 1.0), row((1, 1), ONES)], (1, 2)),
    ],
    ids=["too little gain", "about as good", "worse", "worse by chance"],
)
def test_low_thresholds_are_recommended(rows: list[Row], thresholds: tuple[int, int]) -> None:
    assert advice(window((1, 1)), *rows).choice.thresholds == thresholds


def test_no_gain_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    report.show(result(advice=[advice(window((1, 1)), row((3, 1), 190.0))]))
    said = capsys.readouterr().out
    assert "At 4 requests nothing gains 2% over thresholds of 1" in said
    assert "--threshold small=1 large=1," in said


def test_to_programs() -> None:
    told = json.loads(report.as_json(result()))
    assert told["models"][0]["hops"][1]["share"] == pytest.approx(0.3)
    assert told["concurrency"][0]["best"]["thresholds"] == [1, 3]
    assert told["concurrency"][0]["recommended"]["thresholds"] == [1, 3]
    assert told["concurrency"][0]["stderr"] == pytest.approx(1.0)
    assert told["concurrency"][0]["predicted_tokens_per_s"] == 187.2
    assert told["shares"][1]["kind"] == "beyond"
    assert told["wrote"] == "p.yaml"
    only_shares = json.loads(report.as_json(result(findings=None, advice=[], wrote=None)))
    assert only_shares["models"] is None and only_shares["concurrency"] == []
    assert len(only_shares["tried"]) == 2


def test_only_a_router_threshold(capsys: pytest.CaptureFixture[str]) -> None:
    report.show(result(findings=None, advice=[], wrote=None))
    said = capsys.readouterr().out
    assert "router threshold" in said and "step latency" not in said
