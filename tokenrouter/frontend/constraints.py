"""Grammars that a request puts on its output: one at most, and where models follow it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from tokenrouter.config import Config
from tokenrouter.errors import RequestError, UnsupportedError
from tokenrouter.frontend.values import LONGEST_GRAMMAR
from tokenrouter.ipc.messages import Route

KINDS = ("json_schema", "regex", "ebnf", "structural_tag")
"""SGLang's sampling parameters that hold a grammar."""


def grammar_field(body: BaseModel, prefix: str = "") -> str | None:
    """The field that asks for a grammar, if one does.

    Raises:
        RequestError: several do, or a JSON schema is missing.
    """
    given = [name for name in KINDS if getattr(body, name, None) is not None]
    response_format = getattr(body, "response_format", None)
    if response_format is not None and response_format.type != "text":
        _check_schema(response_format)
        given.insert(0, "response_format")
    if len(given) > 1:
        first, second = (prefix + name for name in given[:2])
        raise RequestError(f"{second}: {first} is given too; give one of them", second)
    return prefix + given[0] if given else None


def check_grammar(config: Config, route: Route, params: Any, field: str | None) -> None:
    """Refuse a grammar that is too long, or that a member of ``route`` would not follow.

    Args:
        params: SGLang's sampling parameters, one dictionary or a list of them; or ``calls``.
        field: what asked for it, for errors.

    Raises:
        RequestError: naming ``field``.
    """
    for each in params if isinstance(params, list) else [params]:
        texts = [each[kind] for kind in (*KINDS, "calls") if each.get(kind) is not None]
        if not texts:
            continue
        if (length := len(texts[0])) > LONGEST_GRAMMAR:
            raise RequestError(
                f"{field}: the grammar has {length} characters, and may have {LONGEST_GRAMMAR}",
                field,
            )
        for member in route.members:
            model = config.models[member]
            if model.engine == "timed":
                raise UnsupportedError(
                    f"{field}: {model.name!r} is a timed member, which follows no grammar", field
                )


def _check_schema(response_format: Any) -> None:
    if response_format.type != "json_schema":
        return
    schema = response_format.json_schema and response_format.json_schema.schema_
    if schema is None:
        field = "response_format.json_schema.schema"
        raise RequestError(f"{field}: missing; give a JSON schema, {{}} for any JSON", field)
