"""Flags that name models: from ``--threshold small=1 large=3`` to settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tokenrouter.errors import ConfigError

REPEATABLE = ("--model", "--threshold", "--member-port")


def expand(arguments: Sequence[str]) -> list[str]:
    """Repeat a flag before each further NAME=VALUE that follows it.

    So ``--threshold small=1 large=3`` means ``--threshold small=1 --threshold large=3``.
    """
    expanded: list[str] = []
    flag, values = "", 0
    for argument in arguments:
        if argument.startswith("-"):
            name, inline, _ = argument.partition("=")
            flag, values = (name if name in REPEATABLE else ""), len(inline)
        else:
            if flag and values:
                expanded.append(flag)
            values += 1
        expanded.append(argument)
    return expanded


def gather(
    scalars: Mapping[str, Any],
    models: Sequence[str] | None,
    thresholds: Sequence[str] | None,
    algorithm_args: str | None,
    member_ports: Sequence[str] | None,
) -> dict[str, Any]:
    """The flags that were given, as `config.load` takes them.

    Raises:
        ConfigError: a flag is malformed.
    """
    flags = {name: value for name, value in scalars.items() if value is not None}
    fields: dict[str, dict[str, Any]] = {}
    for name, path in _pairs("--model", "NAME=PATH", models):
        fields.setdefault(name, {})["model_path"] = path
    for name, value in _pairs("--threshold", "NAME=N", thresholds):
        fields.setdefault(name, {})["threshold"] = value
    ports: dict[str, dict[str, str | int]] = {}
    for name, value in _pairs("--member-port", "NAME.PORT=VALUE", member_ports):
        member, dot, port = name.rpartition(".")
        if not dot:
            raise ConfigError(f"--member-port: wants NAME.PORT=VALUE, got {name}={value}")
        ports.setdefault(member, {})[port] = int(value) if value.isdecimal() else value
    if algorithm_args is not None:
        flags["algorithm_args"] = _json_object("--algorithm-args", algorithm_args)
    return {**flags, "models": fields, "ports": ports}


def _pairs(flag: str, form: str, values: Iterable[str] | None) -> Iterator[tuple[str, str]]:
    for given in values or ():
        name, equals, value = given.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"{flag}: wants {form}, got {given!r}")
        yield name, value


def _json_object(flag: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{flag}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f'{flag}: wants a JSON object such as {{"k": 2}}, got {text}')
    return value
