"""Latencies and run lengths as a parameter file writes them, to and from their objects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tokenrouter.configuration.sglang_args import nearest
from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.parameters import Latency

_AFFINE = ("base", "per_request", "per_token")
_TABLE = ("table", "per_token")
SHORTEST_MS, LONGEST_MS = 1e-3, 1e6
"""Of a step, and of what a request or a token adds to it."""
LARGEST_BATCH = 1_000_000
LONGEST_RUN = 10_000
"""Steps in a row on a model."""
MOST_ENTRIES = 4096
"""In a table of latencies or run lengths."""
_FORMS = "a number, {base, per_request, per_token}, {1: 6.0, 8: 7.5} or {table: {...}, per_token}"


def parse_latency(value: Any) -> Latency:
    """The latency that a file's ``latency_ms`` stands for.

    Raises:
        ValueError: it has none of the forms, or its numbers make no sense.
    """
    if isinstance(value, Latency):
        return value
    if not isinstance(value, Mapping):
        return _checked(base=_number("milliseconds", value))
    if not value:
        raise ValueError(f"is empty; give {_FORMS}")
    if "table" in value:
        _check_keys(value, _TABLE)
        table = value["table"]
        if not isinstance(table, Mapping) or not table:
            raise ValueError(f"table: must be milliseconds by batch size, got {table!r}")
        per_token = _number("per_token", value.get("per_token", 0.0))
        return _checked(table=_by_count(table), per_token=per_token)
    if all(isinstance(key, int) for key in value):
        return _checked(table=_by_count(value))
    _check_keys(value, _AFFINE)
    return _checked(**{key: _number(key, each) for key, each in value.items()})


def latency_value(latency: Latency) -> float | dict[Any, Any]:
    """What a file says for ``latency``: the shortest form."""
    if latency.table:
        table = {size: latency.table[size] for size in sorted(latency.table)}
        return {"table": table, "per_token": latency.per_token} if latency.per_token else table
    if not (latency.per_request or latency.per_token):
        return latency.base
    return {key: each for key in _AFFINE if (each := getattr(latency, key))}


def parse_runs(value: Any) -> dict[int, float] | None:
    """Shares of run lengths, which add up to one, from weights by length.

    Raises:
        ValueError: it is no mapping from lengths (from 1 on) to weights, or has no weight.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValueError(f"must be weights by number of steps such as {{5: 1.0}}, got {value!r}")
    weights = _by_count(value)
    if any(length > LONGEST_RUN for length in weights):
        raise ValueError(f"a run has at most {LONGEST_RUN} steps, got {max(weights)}")
    if any(length < 1 for length in weights) or any(each < 0 for each in weights.values()):
        raise ValueError("a run has at least 1 step, and a weight of at least 0")
    total = sum(weights.values())
    if not total > 0:
        raise ValueError("no length has a weight above 0; give one, or leave runs out")
    return {length: weight / total for length, weight in sorted(weights.items()) if weight}


def _checked(**arguments: Any) -> Latency:
    try:
        latency = Latency(**arguments)
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("latency_ms: ")) from error
    if any(size > LARGEST_BATCH for size in latency.table):
        raise ValueError(f"batch sizes end at {LARGEST_BATCH}, got {max(latency.table)}")
    parts = (latency.base, latency.per_request, latency.per_token, *latency.table.values())
    shortest = min(latency.at(size, size) for size in (1, *latency.table))
    if max(parts) > LONGEST_MS or shortest < SHORTEST_MS:
        raise ValueError(
            f"a step takes from {SHORTEST_MS:g} to {LONGEST_MS:g} ms, got "
            f"{shortest if shortest < SHORTEST_MS else max(parts):g}"
        )
    return latency


def _check_keys(value: Mapping[Any, Any], known: tuple[str, ...]) -> None:
    for key in value:
        if key not in known:
            raise ValueError(f"unknown key {key!r}{nearest(str(key), known)}; give {_FORMS}")


def _by_count(table: Mapping[Any, Any]) -> dict[int, float]:
    if len(table) > MOST_ENTRIES:
        raise ValueError(f"has {len(table)} entries; give at most {MOST_ENTRIES}")
    for key in table:
        if isinstance(key, bool) or not isinstance(key, int):
            raise ValueError(f"{key!r} must be a whole number")
    return {key: _number(str(key), each) for key, each in table.items()}


def _number(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{what}: must be a number, got {value!r}")
    return float(value)
