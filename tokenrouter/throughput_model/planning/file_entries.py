"""The shape of a parameter file: which keys there are, and what each may hold."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tokenrouter.configuration.values import Name, parse_objective
from tokenrouter.throughput_model.parameters import Latency
from tokenrouter.throughput_model.planning.latency_file import parse_latency, parse_runs

DEFAULT_CONCURRENCY = (1, 2, 4, 8, 16)
"""Numbers of requests, where a file names none."""


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, int) else value


Matrix = list[list[float]]
"""A row and a column for each model."""
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
    routing: Matrix
    committed: Matrix | None = None


class File(BaseModel):
    """The whole file; entries of lists are looked at one by one, for the sake of their errors."""

    model_config = _Strict

    models: list[Any] = Field(min_length=1)
    routing: Matrix
    committed: Matrix | None = None
    concurrency: Annotated[
        list[Annotated[int, Field(ge=1)]], Field(min_length=1), BeforeValidator(_as_list)
    ] = list(DEFAULT_CONCURRENCY)
    tick_ms: float | None = Field(None, gt=0)
    thresholds: list[list[int]] = []
    classes: list[Any] = []
    objective: Annotated[Any, BeforeValidator(parse_objective)] = "throughput"
    max_wait_ms: Annotated[float, Field(gt=0, allow_inf_nan=True)] | None = None
