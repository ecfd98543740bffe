"""Values of configuration fields, and what to say when they are wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationError

from tokenrouter.configuration.sglang_args import nearest

StepMs = float | Mapping[str | int, float]
"""Milliseconds of a step: constant, ``{"base", "per_request"}``, or by batch size."""

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


def describe(
    error: ValidationError,
    settings: Mapping[str, Any],
    known: Iterable[str],
    origins: Mapping[str, str],
) -> str:
    """One line on the first problem: the field, what is wrong, and what was given.

    Args:
        settings: what was validated, for the names of its models.
        known: fields there are, for a guess at a misspelt one.
        origins: fields that did not come from the file, and what set them.
    """
    problems = error.errors(include_url=False)
    first = problems[0]
    where = _path(first["loc"], settings)
    cause = first.get("ctx", {}).get("error")
    if first["type"] == "extra_forbidden":
        text = f"{where}: unknown field{nearest(where, known)}"
    elif cause is not None:
        # An error about a whole model entry begins with the field it is about.
        in_entry = where.count(".") == 1 and where.startswith("models.")
        text = f"{where}{'.' if in_entry else ': '}{cause}"
    else:
        text = f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}, got {first['input']!r}"
    if where in origins:
        text += f" (from {origins[where]})"
    return text if len(problems) == 1 else f"{text} (and {len(problems) - 1} more)"


def _path(location: tuple[int | str, ...], settings: Mapping[str, Any]) -> str:
    """``models.small.threshold`` for ``("models", 0, "threshold")``."""
    parts = [str(part) for part in location]
    if len(location) > 1 and location[0] == "models" and isinstance(location[1], int):
        entry = settings["models"][location[1]]
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
            parts[1] = entry["name"]
        if parts[-1] == "sglang":
            parts = parts[:2]
    return ".".join(parts)


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
