"""Values of configuration fields that have a form of their own."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator

StepMs = float | Mapping[str | int, float]
"""Milliseconds of a step: constant, ``{"base", "per_request"}``, or by batch size."""

Objective = Literal["throughput"] | Mapping[str, float]
"""Highest throughput; or, with ``itl_p99_ms``, that of what keeps 99 % of gaps within so long."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_AFFINE = frozenset({"base", "per_request"})


def legal_name(name: str) -> str:
    """``name`` if requests can use it: clients write ``NAME/MEMBER`` and ``NAME@THRESHOLD``.

    Raises:
        ValueError: it holds ``/``, ``@``, a space or the like, or is too long.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot be a name; use up to 64 letters, digits, '.', '_' and '-' "
            "(no '/', '@' or spaces)"
        )
    return name


Name = Annotated[str, AfterValidator(legal_name)]
"""What requests may call a model or the deployment."""


def legal_path(path: Path) -> Path:
    """``path`` if the system can be asked about it.

    Raises:
        ValueError: it holds what no path can.
    """
    try:
        held = b"\0" in os.fsencode(path)
    except UnicodeEncodeError:
        held = True
    if held:
        raise ValueError(f"{str(path)!r} cannot be a path: it holds a NUL or half a character")
    return path


LegalPath = Annotated[Path, AfterValidator(legal_path)]
"""A path that may or may not exist."""


def legal_key(key: str) -> str:
    """``key`` if a header can carry it as it is.

    Raises:
        ValueError: it holds a space, a control character, or one beyond ASCII.
    """
    if not all("!" <= character <= "~" for character in key):
        raise ValueError(
            "no HTTP header can carry it; use letters, digits and punctuation of ASCII, "
            "without spaces or line ends"
        )
    return key


Key = Annotated[str, AfterValidator(legal_key)]
"""What clients send after ``Authorization: Bearer``."""


def parse_step_ms(value: Any) -> StepMs | None:
    """A well-formed ``step_ms``, batch sizes as integers.

    Raises:
        ValueError: neither a number, ``{base, per_request}`` nor ``{batch: ms}``.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        return _milliseconds(value)
    if _AFFINE & value.keys():
        if "base" not in value or not value.keys() <= _AFFINE:
            raise ValueError(f"wants base and per_request, got {', '.join(map(str, value))}")
        return {key: _milliseconds(each) for key, each in value.items()}
    if not value:
        raise ValueError("an empty table; give {batch: ms}")
    return {_batch(key): _milliseconds(each) for key, each in value.items()}


def parse_threshold(value: Any) -> int | Literal["auto"]:
    """A batch threshold.

    Raises:
        ValueError: neither ``auto`` nor an integer from 1 on.
    """
    if value == "auto":
        return "auto"
    text = str(value)
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"must be a number of requests from 1 on, or auto; got {value!r}")
    return int(text)


def parse_objective(value: Any) -> Objective:
    """A well-formed ``objective``; as text, its YAML will do.

    Raises:
        ValueError: neither ``throughput`` nor ``{itl_p99_ms: milliseconds}``.
    """
    try:
        given = yaml.safe_load(value) if isinstance(value, str) else value
    except yaml.YAMLError:
        given = None
    if given == "throughput":
        return "throughput"
    if not isinstance(given, Mapping) or given.keys() != {"itl_p99_ms"}:
        raise ValueError(f"must be throughput, or itl_p99_ms: MILLISECONDS; got {value!r}")
    limit = _milliseconds(given["itl_p99_ms"])
    if not limit:
        raise ValueError("itl_p99_ms: must be more than 0")
    return {"itl_p99_ms": limit}


def _milliseconds(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        raise ValueError(f"milliseconds must be a number >= 0, got {value!r}")
    return float(value)


def _batch(value: Any) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"a batch size must be an integer >= 1, got {value!r}")
    return int(text)
