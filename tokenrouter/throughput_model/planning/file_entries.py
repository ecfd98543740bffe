"""The shape of a parameter file: which keys there are, and what each may hold."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from tokenrouter.configuration.values import Name, parse_objective
from tokenrouter.throughput_model.parameters import Latency
from tokenrouter.throughput_model.planning.latency_file import LONGEST_MS, parse_latency, parse_runs

DEFAULT_CONCURRENCY = (1, 2, 4, 8, 16)
"""Numbers of requests, where a file names none."""


MOST_REQUESTS = 4096
"""Largest concurrency: beyond it, one simulation takes minutes and gigabytes."""
MOST_MODELS = 16
MOST_VECTORS = 10_000
MOST_CONCURRENCIES = 1000
TOKENS = (1e-6, 1e6)
"""What a step commits, at least and at most, unless it commits nothing."""
SMALLEST_SHARE = 1e-9
"""Of the steps on a model, which lead to another."""
LONGEST_WAIT_MS = 1e9
"""Longest `max_wait_ms` that is not infinite."""


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, int) else value


def _vectors(value: Any) -> Any:
    """Refuses a single vector."""
    if isinstance(value, list) and any(isinstance(each, int) for each in value):
        raise ValueError(f"give a list of vectors such as [[1, 2]], got {value!r}")
    return value


def _tokens(value: float) -> float:
    least, most = TOKENS
    if value and not least <= value <= most:
        raise ValueError(f"a step commits 0, or from {least:g} to {most:g} tokens, got {value:g}")
    return value


def _wait(value: float) -> float:
    if LONGEST_WAIT_MS < value < math.inf:
        raise ValueError(f"must be at most {LONGEST_WAIT_MS:g}, or .inf for any; got {value:g}")
    return value


def _share(value: float) -> float:
    if value and not value >= SMALLEST_SHARE:
        raise ValueError(f"must be 0, or {SMALLEST_SHARE:g} and more, got {value:g}")
    return value


Matrix = list[list[float]]
"""A row and a column for each model."""
Routing = list[list[Annotated[float, AfterValidator(_share)]]]
Committed = list[list[Annotated[float, AfterValidator(_tokens)]]]
_Strict = ConfigDict(
    extra="forbid", strict=True, arbitrary_types_allowed=True, allow_inf_nan=False, frozen=True
)


class ModelEntry(BaseModel):
    """An entry of ``models``."""

    model_config = _Strict

    name: Name
    latency_ms: Annotated[Latency, BeforeValidator(parse_latency)]
    max_batch: int | None = Field(None, ge=1)
    runs: Annotated[dict[int, float] | None, BeforeValidator(parse_runs)] = None


class ClassEntry(BaseModel):
    """An entry of ``classes``."""

    model_config = _Strict

    share: float = Field(gt=0, le=1)
    routing: Routing
    committed: Committed | None = None


class File(BaseModel):
    """The whole file; entries of lists are looked at one by one, for the sake of their errors."""

    model_config = _Strict

    models: list[Any] = Field(min_length=1, max_length=MOST_MODELS)
    routing: Routing
    committed: Committed | None = None
    concurrency: Annotated[
        list[Annotated[int, Field(ge=1, le=MOST_REQUESTS)]],
        Field(min_length=1, max_length=MOST_CONCURRENCIES),
        BeforeValidator(_as_list),
    ] = list(DEFAULT_CONCURRENCY)
    tick_ms: float | None = Field(None, ge=1e-6, le=LONGEST_MS)
    thresholds: Annotated[
        list[list[Annotated[int, Field(ge=1)]]],
        Field(max_length=MOST_VECTORS),
        BeforeValidator(_vectors),
    ] = []
    classes: list[Any] = []
    objective: Annotated[Any, BeforeValidator(parse_objective)] = "throughput"
    max_wait_ms: Annotated[float, Field(gt=0, allow_inf_nan=True), AfterValidator(_wait)] | None = (
        None
    )
