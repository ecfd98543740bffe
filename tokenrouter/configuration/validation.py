"""From settings to checked objects, with every problem found on the way, not only the first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tokenrouter.configuration.sglang_args import Wrong, nearest
from tokenrouter.errors import ConfigError

SECRETS = frozenset({"api_key"})
"""Fields whose values are never shown."""

Model = TypeVar("Model", bound=BaseModel)


@contextmanager
def collecting(problems: list[str]) -> Iterator[None]:
    """Add the problems of a `ConfigError` inside to ``problems``, and go on after it."""
    try:
        yield
    except ConfigError as error:
        problems.extend(error.problems)


def validate(
    kind: type[Model],
    values: Mapping[Any, Any],
    where: str,
    problems: list[str],
    muted: Iterable[str] = (),
    decisive: Iterable[str] = (),
) -> Model | None:
    """``values`` as a ``kind``, with problems appended to ``problems``.

    A wrong field is reported and left out, so that what depends on others is looked at too.

    Args:
        where: what the values belong to, before each field's name (empty: nothing).
        muted: fields whose problems are known already.
        decisive: fields without which the others cannot be judged.

    Returns:
        An object, in which wrong fields have their defaults; None if that cannot be.
    """
    values = dict(values)
    reported: set[Any] = set(muted)
    while True:
        try:
            return kind.model_validate(values)
        except ValidationError as error:
            found = [
                pair
                for each in error.errors(include_url=False)
                for pair in _describe(each, kind.model_fields)
            ]
        problems.extend(
            f"{where}.{text}" if where else text for field, text in found if field not in reported
        )
        wrong = {field for field, _ in found}
        if not wrong & values.keys() or wrong & set(decisive):
            return None
        reported |= wrong
        values = {field: value for field, value in values.items() if field not in wrong}


def with_origins(problems: Iterable[str], origins: Mapping[str, str]) -> list[str]:
    """Each problem once, with what set its field, or what the field is part of."""
    shown = []
    for problem in dict.fromkeys(problems):
        origin = origin_of(problem.partition(": ")[0], origins)
        shown.append(f"{problem} (from {origin})" if origin else problem)
    return shown


def origin_of(field: str, origins: Mapping[str, str]) -> str | None:
    """What set ``field``, a dotted path, or the entry or list that it stands in."""
    parts = field.split(".")
    paths = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((origins[path] for path in paths if path in origins), None)


def _describe(error: ErrorDetails, known: Iterable[str]) -> list[tuple[Any, str]]:
    """The field, and what is wrong with it; several for an error that tells of several."""
    path = ".".join(map(str, error["loc"]))
    field = error["loc"][0] if error["loc"] else ""
    cause = error.get("ctx", {}).get("error")
    if error["type"] == "extra_forbidden":
        return [(field, f"{path}: unknown field{nearest(str(error['loc'][-1]), known)}")]
    if error["type"] == "missing":  # its input is all that is around it
        return [(field, f"{path}: field required")]
    if cause is None:
        text = f"{path}: {error['msg'][:1].lower()}{error['msg'][1:]}"
        return [(field, text if field in SECRETS else f"{text}, got {error['input']!r}")]
    texts = cause.problems if isinstance(cause, Wrong) else (str(cause),)
    if path in ("", "sglang"):  # said of a whole entry: each text begins with its field
        return [(text.partition(":")[0], text) for text in texts]
    return [(field, f"{path}: {text}") for text in texts]
