"""`tokenrouter plan`: what every threshold vector of a parameter file is expected to give."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenrouter.configuration.values import parse_objective
from tokenrouter.errors import ConfigError

if TYPE_CHECKING:
    from tokenrouter.throughput_model.planning.outlook import Case, Outlook
    from tokenrouter.throughput_model.planning.parameter_file import Parameters
    from tokenrouter.throughput_model.planning.planning import Progress

Params = Annotated[Path, typer.Argument(help="Parameter file (YAML).", metavar="PARAMS.yaml")]
Json = Annotated[bool, typer.Option("--json", help="Tell programs instead of people.")]
Plot = Annotated[Path | None, typer.Option(help="Also draw it: .png, .svg, .pdf.", metavar="FILE")]
Objective = Annotated[
    str | None,
    typer.Option(help="throughput, or the most of it within 'itl_p99_ms: 70'.", metavar="WHAT"),
]
Sensitivity = Annotated[
    bool, typer.Option("--sensitivity", help="Also what it costs if the file is wrong.")
]
MaxWait = Annotated[
    float | None,
    typer.Option(help="Longest wait for a threshold; inf: any.", metavar="MS"),
]
Concurrency = Annotated[
    list[int] | None,
    typer.Option(help="Requests served at once (else the file's; 1 2 4 8 16).", metavar="N ..."),
]

Decisions = Annotated[
    Path | None,
    typer.Option(help="Replay what record_decisions wrote there.", metavar="FOLDER"),
]


def plan(
    params: Params,
    json: Json = False,
    plot: Plot = None,
    objective: Objective = None,
    sensitivity: Sensitivity = False,
    max_wait_ms: MaxWait = None,
    concurrency: Concurrency = None,
    decisions: Decisions = None,
) -> None:
    """Predict throughput and waits of thresholds, and name the best; nothing is started."""
    from tokenrouter.throughput_model.planning import parameter_file, planning, report
    from tokenrouter.throughput_model.planning import plot as picture

    file = parameter_file.read(params)
    if decisions is not None:
        file = _with_decisions(file, decisions)
    given = _with_flags(file, objective, max_wait_ms, concurrency)
    if plot is not None:
        picture.check(plot)
    with _progress(shown=not json) as progress:
        outlooks = planning.plan(given, progress)
        cases = _cases(given, outlooks, progress) if sensitivity else []
    notes = planning.notes(given, outlooks)
    if sensitivity:
        notes += _not_tried(given)
    if plot is not None:
        picture.save(plot, given.system, outlooks)
    if json:
        typer.echo(report.as_json(given, outlooks, notes, cases))
    else:
        report.show(given, outlooks, notes, cases)


def _with_flags(
    file: Parameters,
    objective: str | None,
    max_wait_ms: float | None,
    concurrency: Sequence[int] | None,
) -> Parameters:
    """What the file says, but for what flags do."""
    from tokenrouter.throughput_model.planning.file_entries import LONGEST_WAIT_MS, MOST_REQUESTS

    changes: dict[str, Any] = {}
    if objective is not None:
        try:
            changes["objective"] = parse_objective(objective)
        except ValueError as error:
            raise ConfigError(f"--objective: {error}") from None
    if max_wait_ms is not None:
        if not max_wait_ms > 0:
            raise ConfigError(f"--max-wait-ms: must be more than 0, got {max_wait_ms:g}")
        if LONGEST_WAIT_MS < max_wait_ms < math.inf:
            raise ConfigError(
                f"--max-wait-ms: must be at most {LONGEST_WAIT_MS:g}, or inf; got {max_wait_ms:g}"
            )
        changes["max_wait_ms"] = max_wait_ms
    if concurrency:
        wrong = [each for each in concurrency if not 1 <= each <= MOST_REQUESTS]
        if wrong:
            raise ConfigError(f"--concurrency: must be from 1 to {MOST_REQUESTS}, got {wrong[0]}")
        changes["concurrency"] = tuple(dict.fromkeys(concurrency))
    return replace(file, **changes)


def _with_decisions(file: Parameters, folder: Path) -> Parameters:
    from tokenrouter.throughput_model.planning.recording import with_decisions

    return with_decisions(file, folder)


def _cases(given: Parameters, outlooks: Sequence[Outlook], progress: Progress) -> list[Case]:
    from tokenrouter.throughput_model.planning import sensitivity

    found = []
    for index, outlook in enumerate(outlooks):
        for case in sensitivity.cases(given, outlook):
            progress(index / len(outlooks), f"{outlook.concurrency} at once, {case.what}")
            found.append(case)
    return found


def _not_tried(given: Parameters) -> list[str]:
    from tokenrouter.throughput_model.planning import sensitivity

    return sensitivity.notes(given)


@contextmanager
def _progress(shown: bool) -> Iterator[Progress]:
    """Shows on stderr how far it is, if ``shown`` and somebody looks."""
    from tokenrouter.cli_progress import progress_bars

    with progress_bars(shown) as bars:
        task = bars.add_task("", total=1.0)
        yield lambda share, what: bars.update(task, completed=share, description=what)
