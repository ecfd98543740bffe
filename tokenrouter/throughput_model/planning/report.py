"""How `tokenrouter plan` tells its outlook: to people in tables, or to programs in JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from tokenrouter.throughput_model.parameters import Thresholds
from tokenrouter.throughput_model.planning.objective import limit_ms
from tokenrouter.throughput_model.planning.outlook import Case, Outlook, Row
from tokenrouter.throughput_model.planning.parameter_file import Parameters

WIDTH = 100
"""Columns of a table; a narrower terminal breaks lines, which loses nothing."""
ROWS = 12
"""Vectors in a table, at most; programs are told of all."""


def as_json(
    parameters: Parameters,
    outlooks: Sequence[Outlook],
    notes: Sequence[str],
    cases: Sequence[Case],
) -> str:
    """Every row, the best one of each concurrency, and what it costs if the file is wrong."""
    objective = parameters.objective
    content = {
        "models": [model.name for model in parameters.system.models],
        "objective": objective if objective == "throughput" else dict(objective),
        "rows": [_entry(each, row) for each in outlooks for row in each.rows],
        "best": {str(each.concurrency): _entry(each, each.best) for each in outlooks},
        "notes": list(notes),
        "sensitivity": [_case(each) for each in cases],
    }
    return json.dumps(content, indent=2)


def _entry(outlook: Outlook, row: Row) -> dict[str, Any]:
    prediction = row.prediction
    return {
        "concurrency": outlook.concurrency,
        "thresholds": list(row.thresholds),
        "tokens_per_s": prediction.tokens_per_s,
        "method": prediction.method,
        "states": prediction.states,
        "stderr": prediction.stderr,
        "utilisation": list(prediction.utilisation),
        "mean_batch": list(prediction.mean_batch),
        "mean_queue": list(prediction.mean_queue),
        "bound_tokens_per_s": outlook.bound,
        "bottleneck": outlook.bottleneck,
        "of_bound": row.of_bound,
        "gain_over_ones": row.over_ones,
        "gain_over_lockstep": row.over_lockstep,
        "itl_p50_ms": row.tail.itl_p50_ms,
        "itl_p99_ms": row.tail.itl_p99_ms,
        "wait_ms": list(row.tail.wait_ms),
        "expired_waits_per_s": row.tail.expired,
    }


def _case(case: Case) -> dict[str, Any]:
    return {
        "concurrency": case.concurrency,
        "what": case.what,
        "best": list(case.best.thresholds),
        "best_tokens_per_s": case.best.tokens_per_s,
        "kept": list(case.kept.thresholds),
        "kept_tokens_per_s": case.kept.tokens_per_s,
        "kept_itl_p99_ms": case.kept_itl_p99_ms,
        "regret": case.regret,
    }


def show(
    parameters: Parameters,
    outlooks: Sequence[Outlook],
    notes: Sequence[str],
    cases: Sequence[Case],
) -> None:
    """Print a table for each concurrency, then what it costs if the file is wrong, then notes."""
    to = Console(highlight=False, markup=False)
    to.width = max(to.width, WIDTH) if to.is_terminal else WIDTH
    names = ", ".join(model.name for model in parameters.system.models)
    to.print(f"thresholds, busy shares and waits are of {names}, in this order")
    for outlook in outlooks:
        to.print()
        to.print(_headline(parameters, outlook), style="bold")
        rows = shown(outlook, limit_ms(parameters.objective))
        to.print(_table(rows, outlook.best))
        hidden = len(outlook.rows) - len(rows)
        if hidden > 0:
            some = outlook.feasible > len(outlook.rows) and not parameters.thresholds
            which = f" of {outlook.feasible} that are feasible" if some else ""
            to.print(f"and {hidden} more vectors were looked at{which} (--json tells of them)")
        if outlook.best is not outlook.rows[0] and parameters.objective == "throughput":
            to.print("what the error cannot tell apart: the lowest thresholds are the best")
        own = [case for case in cases if case.concurrency == outlook.concurrency]
        if own:
            to.print()
            to.print(_sensitivity(own))
    for note in notes:
        to.print(f"\nnote: {note}")


def _headline(parameters: Parameters, outlook: Outlook) -> str:
    best, objective = outlook.best, parameters.objective
    aim = ""
    if objective != "throughput":
        limit = f"{objective['itl_p99_ms']:g} ms"
        aim = f" with 99 % of gaps within {limit}"
        if not outlook.met:
            aim = f" (no thresholds keep 99 % of gaps within {limit}; these come nearest)"
    return (
        f"{_requests(outlook.concurrency)}: best {_vector(best.thresholds)}{aim}, "
        f"{best.tokens_per_s:.1f} tokens/s, {best.of_bound:.0%} of the bound of "
        f"{outlook.bound:.1f} ({_at_bound(parameters, outlook)})"
    )


def _at_bound(parameters: Parameters, outlook: Outlook) -> str:
    if outlook.bottleneck is None:
        return "nobody waits"
    return f"{parameters.system.models[outlook.bottleneck].name} never waits"


def _requests(concurrency: int) -> str:
    return "1 request" if concurrency == 1 else f"{concurrency} requests"


def _vector(thresholds: Thresholds) -> str:
    return ",".join(map(str, thresholds))


def _table(rows: Iterable[Row], best: Row) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("thresholds", no_wrap=True)
    columns = ("tokens/s", "+-", "to 1s", "lockstep", "busy %", "gap p50", "p99 ms", "wait ms")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row, row is best), style="bold" if row is best else "")
    return table


def shown(outlook: Outlook, limit: float = math.inf) -> list[Row]:
    """The best, thresholds of 1, and the fastest; up to half of these with p99 within ``limit``."""
    wanted = [
        row
        for row in outlook.rows
        if row is outlook.best or all(each == 1 for each in row.thresholds)
    ]
    within = [row for row in outlook.rows if row.tail.itl_p99_ms <= limit < math.inf]
    chosen = list(dict.fromkeys([*wanted, *within[: ROWS // 2], *outlook.rows]))[:ROWS]
    return [row for row in outlook.rows if row in chosen]


def _cells(row: Row, best: bool) -> list[str]:
    prediction, tail = row.prediction, row.tail
    return [
        f"{_vector(row.thresholds)}{' *' if best else ''}",
        f"{prediction.tokens_per_s:.1f}",
        "exact" if prediction.method == "exact" else f"{prediction.stderr:.1f}",
        f"{row.over_ones:+.1%}",
        f"{row.over_lockstep:+.1%}",
        _joined(100 * each for each in prediction.utilisation),
        f"{tail.itl_p50_ms:.1f}",
        f"{tail.itl_p99_ms:.1f}",
        _joined(tail.wait_ms),
    ]


def _sensitivity(cases: Sequence[Case]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("if", no_wrap=True)
    for column in ("best", "tokens/s", "kept", "lost", "p99 ms"):
        table.add_column(column, justify="right", no_wrap=True)
    for case in cases:
        table.add_row(
            case.what,
            _vector(case.best.thresholds),
            f"{case.best.tokens_per_s:.1f}",
            f"{case.kept.tokens_per_s:.1f}",
            f"{case.regret:.1%}",
            f"{case.kept_itl_p99_ms:.1f}",
        )
    return table


def _joined(values: Iterable[float]) -> str:
    return " ".join(f"{each:.0f}" for each in values)
