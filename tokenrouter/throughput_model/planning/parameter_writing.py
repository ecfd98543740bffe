"""The parameter file that says what `Parameters` hold: what `parameter_file.py` reads again."""

from __future__ import annotations

import math
from typing import Any

import yaml

from tokenrouter.throughput_model.parameters import Model
from tokenrouter.throughput_model.planning.file_entries import Matrix
from tokenrouter.throughput_model.planning.latency_file import latency_value
from tokenrouter.throughput_model.planning.parameter_file import Parameters


def write(parameters: Parameters, comment: str = "") -> str:
    """The YAML that `parse` reads ``parameters`` from, below ``comment``."""
    system = parameters.system
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    lines += ["models:", *(f"  - {_flow(_entry(parameters, each))}" for each in system.models)]
    lines.append(f"routing: {_flow(system.routing.tolist())}")
    lines.append(f"committed: {_flow(_plain(system.committed.tolist()))}")
    lines.append(f"concurrency: {_flow(list(parameters.concurrency))}")
    if system.tick_ms is not None:
        lines.append(f"tick_ms: {_flow(system.tick_ms)}")
    if parameters.thresholds:
        lines.append(f"thresholds: {_flow([list(each) for each in parameters.thresholds])}")
    if parameters.classes:
        lines.append("classes:")
    for kind in parameters.classes:
        own = {
            "share": kind.share,
            "routing": kind.system.routing.tolist(),
            "committed": _plain(kind.system.committed.tolist()),
        }
        lines.append(f"  - {_flow(own)}")
    if parameters.objective != "throughput":
        lines.append(f"objective: {_flow(dict(parameters.objective))}")
    if parameters.max_wait_ms is not None:
        lines.append(f"max_wait_ms: {_flow(parameters.max_wait_ms)}")
    return "\n".join(lines) + "\n"


def _entry(parameters: Parameters, model: Model) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": model.name, "latency_ms": latency_value(model.latency)}
    if model.max_batch is not None:
        entry["max_batch"] = model.max_batch
    if runs := parameters.runs.get(model.name):
        entry["runs"] = dict(runs)
    return entry


def _plain(matrix: Matrix) -> list[list[int | float]]:
    """Whole numbers without a decimal point."""
    return [[int(each) if float(each).is_integer() else each for each in row] for row in matrix]


def _flow(value: Any) -> str:
    """``value`` on one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")
