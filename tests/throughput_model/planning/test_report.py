"""A plan as people read it, and as programs do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.throughput_model.plans import MODELS, outlook, parameters, prediction
from tokenrouter.configuration.values import Objective
from tokenrouter.throughput_model.planning import report
from tokenrouter.throughput_model.planning.outlook import Case, Outlook
from tokenrouter.throughput_model.systems import cascade

PLAN = outlook(((1, 3), 208.0, 74.0), ((1, 2), 195.25, 64.0), ((1, 1), 187.0, 60.0))
CASE = Case(
    4, "latency of small +20%", prediction((1, 2), 200.0), prediction((1, 3), 190.0), 0.05, 81.0
)


def shown(
    capsys: pytest.CaptureFixture[str],
    *outlooks: Outlook,
    notes: tuple[str, ...] = (),
    cases: tuple[Case, ...] = (),
    **changes: Any,
) -> list[str]:
    """The lines that people see."""
    report.show(parameters(**changes), outlooks, notes, cases)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_table_says_what_each_vector_gives(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, PLAN) == [
        "thresholds, busy shares and waits are of small, large, in this order",
        "",
        "4 requests: best 1,3, 208.0 tokens/s, 50% of the bound of 400.0 (nobody waits)",
        "thresholds  tokens/s     +-   to 1s  lockstep  busy %  gap p50  p99 ms  wait ms",
        "1,3 *          208.0  exact  +25.0%    -12.5%   50 50      6.0    74.0      1 1",
        "1,2            195.2  exact  +25.0%    -12.5%   50 50      6.0    64.0      1 1",
        "1,1            187.0  exact  +25.0%    -12.5%   50 50      6.0    60.0      1 1",
    ]


@pytest.mark.parametrize(
    ("met", "said"),
    [
        (True, "best 1,3 with 99 % of gaps within 70 ms, 208.0"),
        (False, "best 1,3 (no thresholds keep 99 % of gaps within 70 ms; these come nearest), 208"),
    ],
)
def test_an_objective_is_told(capsys: pytest.CaptureFixture[str], met: bool, said: str) -> None:
    limit: Objective = {"itl_p99_ms": 70.0}
    lines = shown(capsys, replace(PLAN, met=met), objective=limit)
    assert said in " ".join(lines)


def test_a_model_that_bounds_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, replace(PLAN, bottleneck=1))
    assert lines[2].endswith("50% of the bound of 400.0 (large never waits)")


def test_errors_of_simulations_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    noisy = replace(PLAN.rows[0], prediction=prediction((1, 3), 187.5, stderr=0.375))
    one = replace(PLAN, rows=(noisy, *PLAN.rows[2:]), best=PLAN.rows[2])
    lines = shown(capsys, one)
    assert "187.5    0.4 " in lines[4]
    assert lines[-1] == "what the error cannot tell apart: the lowest thresholds are the best"


def test_a_long_table_is_cut_but_keeps_the_best_and_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [((1, large), 300.0 - large, 50.0) for large in range(2, 40)]
    plan = outlook(*rows, ((1, 1), 100.0, 50.0), best=30, feasible=500)
    chosen = [row.thresholds for row in report.shown(plan)]
    assert chosen == [*((1, large) for large in range(2, 12)), (1, 32), (1, 1)]
    assert shown(capsys, plan)[-2:-1] == [
        "and 27 more vectors were looked at of 500 that are feasible (--json tells of them)"
    ]
    told = shown(capsys, plan, thresholds=tuple(row.thresholds for row in plan.rows))
    assert told[-2:-1] == ["and 27 more vectors were looked at (--json tells of them)"]
    assert "more vectors" not in "".join(shown(capsys, replace(PLAN, feasible=500)))


def test_half_of_a_cut_table_meets_the_objective() -> None:
    fast = [((1, large), 300.0 - large, 80.0) for large in range(20, 40)]
    slow = [((1, large), 200.0 - large, 60.0) for large in range(2, 20)]
    plan = outlook(*fast, *slow, ((1, 1), 100.0, 50.0), best=20)
    chosen = [row.thresholds for row in report.shown(plan, 70.0)]
    quick, kept = range(20, 25), range(2, 8)
    assert chosen == [*((1, large) for large in (*quick, *kept)), (1, 1)]


def test_it_fits_four_models_into_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    models = [replace(MODELS[0], name=name) for name in "abcd"]
    plan = outlook(((12, 12, 12, 100), 12345.0, 1074.0), ((1, 1, 1, 1), 12000.0, 1060.0))
    lines = shown(capsys, plan, system=cascade(models, [0.3] * 3))
    assert max(map(len, lines)) <= 100
    assert "12,12,12,100 *   12345.0  exact" in lines[4]
    assert "…" not in "".join(lines)


def test_what_it_costs_if_the_file_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, PLAN, replace(PLAN, concurrency=5), cases=(CASE,))
    [place] = [index for index, line in enumerate(lines) if line.startswith("if ")]
    assert lines[place : place + 3] == [
        "if                     best  tokens/s   kept  lost  p99 ms",
        "latency of small +20%   1,2     200.0  190.0  5.0%    81.0",
        "",
    ]
    assert lines[place + 3].startswith("5 requests: ")


def test_notes_come_last(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, PLAN, notes=("mind [the] gap",))[-2:] == ["", "note: mind [the] gap"]


def test_programs_are_told_everything() -> None:
    plan = json.loads(report.as_json(parameters(), [PLAN], ["a note"], [CASE]))
    assert [row["thresholds"] for row in plan["rows"]] == [[1, 3], [1, 2], [1, 1]]
    assert plan["best"] == {"4": plan["rows"][0]}
    assert plan["rows"][0] == {
        "concurrency": 4,
        "thresholds": [1, 3],
        "tokens_per_s": 208.0,
        "method": "exact",
        "states": 5,
        "stderr": 0.0,
        "utilisation": [0.5, 0.5],
        "mean_batch": [0.5, 0.5],
        "mean_queue": [0.5, 0.5],
        "bound_tokens_per_s": 400.0,
        "bottleneck": None,
        "of_bound": 0.5,
        "gain_over_ones": 0.25,
        "gain_over_lockstep": -0.125,
        "itl_p50_ms": 6.0,
        "itl_p99_ms": 74.0,
        "wait_ms": [1.0, 1.0],
        "expired_waits_per_s": 0.0,
    }
    assert plan["sensitivity"] == [
        {
            "concurrency": 4,
            "what": "latency of small +20%",
            "best": [1, 2],
            "best_tokens_per_s": 200.0,
            "kept": [1, 3],
            "kept_tokens_per_s": 190.0,
            "kept_itl_p99_ms": 81.0,
            "regret": 0.05,
        }
    ]
    assert (plan["models"], plan["notes"]) == (["small", "large"], ["a note"])
    assert plan["objective"] == "throughput"
