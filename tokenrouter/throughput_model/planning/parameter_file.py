"""The parameter file: a system, and what to plan for it, as YAML.

    models:
      - {name: small, latency_ms: 6.0}
      - {name: large, latency_ms: {base: 27.9, per_request: 0.3}, max_batch: 8}
    routing: [[0.65, 0.35], [1.0, 0.0]]
    committed: [[1, 0], [1, 1]]
    concurrency: [2, 3, 4]

`calibrate` writes it from a running deployment (`parameter_writing.py`); `plan` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy

from tokenrouter.configuration.sources import read_file
from tokenrouter.configuration.validation import collecting, validate, with_origins
from tokenrouter.configuration.values import Objective
from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.parameters import SUM_TOLERANCE, Model, System, Thresholds
from tokenrouter.throughput_model.planning.file_entries import (
    DEFAULT_CONCURRENCY,
    ClassEntry,
    File,
    Matrix,
    ModelEntry,
)


@dataclass(frozen=True, eq=False, slots=True)
class RequestClass:
    """A share of the requests (0 to 1), with a routing of its own."""

    share: float
    system: System


@dataclass(frozen=True, eq=False, slots=True)
class Parameters:
    """What a parameter file says.

    Args:
        concurrency: numbers of requests that are served at once.
        thresholds: only these vectors; none: all that are feasible.
        runs: share of each number of steps in a row on a model, by the model's name, for those
            where it is not geometric.
        classes: kinds of requests that are routed differently; none: all are alike.
        objective: what the best vector is, as in a deployment's configuration.
        max_wait_ms: longest wait for a threshold; inf: any; None: as the server's default.
        decisions: folder of recorded decisions to replay, which no file names: see `recording.py`.
    """

    system: System
    concurrency: tuple[int, ...] = DEFAULT_CONCURRENCY
    thresholds: tuple[Thresholds, ...] = ()
    runs: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    classes: tuple[RequestClass, ...] = ()
    objective: Objective = "throughput"
    max_wait_ms: float | None = None
    decisions: Path | None = None


def read(path: Path) -> Parameters:
    """What the file at ``path`` says.

    Raises:
        ConfigError: it cannot be read, or is wrong; every problem names the field, the line
            where it stands, and the remedy.
    """
    content, places = read_file(path)
    try:
        return parse(content)
    except ConfigError as error:
        raise ConfigError(*with_origins(error.problems, places)) from None


def parse(content: Mapping[Any, Any]) -> Parameters:
    """What the content of a parameter file says.

    Raises:
        ConfigError: something is wrong with it.
    """
    problems: list[str] = []
    file = validate(File, content, "", problems)
    entries = _entries(ModelEntry, "models", content.get("models"), problems)
    kinds = _entries(ClassEntry, "classes", content.get("classes"), problems)
    problems += _problems_of(entries)
    total = sum(kind.share for kind in kinds)
    if kinds and not problems and abs(total - 1.0) > SUM_TOLERANCE:
        problems.append(f"classes: the shares add up to {total:.6g}; they must be 1")
    if problems or file is None:
        raise ConfigError(*problems)
    with collecting(problems):
        system = _system(file, entries, file.routing, file.committed)
    problems += [
        f"thresholds.{index}: {each} must be {len(entries)} numbers, one for each model"
        for index, each in enumerate(file.thresholds)
        if len(each) != len(entries)
    ]
    classes = []
    for index, kind in enumerate(kinds):
        found: list[str] = []
        with collecting(found):
            own = _system(file, entries, kind.routing, kind.committed or file.committed)
            classes.append(RequestClass(kind.share, own))
        problems.extend(f"classes.{index}.{each}" for each in found)
    if problems:
        raise ConfigError(*problems)
    return Parameters(
        system,
        concurrency=tuple(dict.fromkeys(file.concurrency)),
        thresholds=tuple(dict.fromkeys(map(tuple, file.thresholds))),
        runs={entry.name: entry.runs for entry in entries if entry.runs},
        classes=tuple(classes),
        objective=file.objective,
        max_wait_ms=file.max_wait_ms,
    )


def _problems_of(entries: list[ModelEntry]) -> list[str]:
    """What is wrong with the models together, each of which is right."""
    names = [entry.name for entry in entries]
    problems = [
        f"models.{name}: this name is given twice; choose another"
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    if len(entries) == 1 and entries[0].runs:
        problems.append(f"models.{names[0]}.runs: there is no other model to go to; leave it out")
    return problems


def _entries(kind: type[Any], where: str, given: Any, problems: list[str]) -> list[Any]:
    """The entries of a list that are right; problems of the others go to ``problems``."""
    found = []
    for index, each in enumerate(given if isinstance(given, list) else ()):
        if not isinstance(each, Mapping):
            problems.append(f"{where}.{index}: must be a mapping, got {each!r}")
            continue
        entry = validate(kind, each, f"{where}.{each.get('name', index)}", problems)
        if entry is not None:
            found.append(entry)
    return found


def _system(
    file: File, entries: list[ModelEntry], routing: Matrix, committed: Matrix | None
) -> System:
    models = tuple(Model(each.name, each.latency_ms, each.max_batch) for each in entries)
    count = len(models)
    matrices = {"routing": routing, "committed": committed or [[1.0] * count] * count}
    for name, matrix in matrices.items():
        if [len(row) for row in matrix] != [count] * count:  # numpy cannot say it of a ragged one
            raise ConfigError(f"{name}: must have a row and a column for each of {count} models")
    routed, kept = (numpy.array(matrix) for matrix in matrices.values())
    return System(models, routed, kept, file.tick_ms)
