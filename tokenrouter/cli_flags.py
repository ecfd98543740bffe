"""What flags that describe a deployment say: from ``--threshold small=1 large=3`` to settings.

`cli_options.py` lists them; `config.read` takes what `gather` makes of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tokenrouter.cli_options import ARGUMENT_OF, OF_MODELS, REPEATABLE, flag_of, parameters
from tokenrouter.configuration.layers import Layer
from tokenrouter.configuration.model import argument_names, parse_argument
from tokenrouter.configuration.sglang_args import nearest
from tokenrouter.errors import ConfigError

COMMANDS = frozenset({"serve", "check", "config"})
"""Commands that take these flags."""
NUMBERS = frozenset({"--concurrency", "--share"})
"""Flags of other commands that may be followed by several numbers."""
SWITCHES = frozenset({"--demo", "--json", "--help"})
"""Further flags of theirs, without a value."""


def expand(arguments: Sequence[str]) -> list[str]:
    """Repeat a flag before each further NAME=VALUE that follows it.

    So ``--threshold small=1 large=3`` means ``--threshold small=1 --threshold large=3``, and
    ``--concurrency 2 4 FILE`` means ``--concurrency 2 --concurrency 4 FILE``.
    """
    expanded: list[str] = []
    flag, values = "", 0
    for argument in arguments:
        if argument.startswith("-"):
            name, inline, _ = argument.partition("=")
            flag, values = (name if name in REPEATABLE | NUMBERS else ""), len(inline)
        else:
            if flag and values and (flag not in NUMBERS or _is_number(argument)):
                expanded.append(flag)
            values += 1
        expanded.append(argument)
    return expanded


def _is_number(argument: str) -> bool:
    return argument.replace(".", "", 1).isdecimal()


def gather(flags: Mapping[str, Any]) -> Layer:
    """The flags that were given (the others are None) as settings.

    Raises:
        ConfigError: one or more are malformed.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    values: dict[str, Any] = {}
    origins = {}
    for name in (name for name in given if name not in OF_MODELS):
        values[name] = given[name]
        origins[name] = flag_of(name)
    for name in values.keys() & {"algorithm_args", "algorithms"}:
        values[name] = _json_object(origins[name], values[name])
    models: dict[str, dict[str, Any]] = {}
    for flag, argument in ARGUMENT_OF.items():
        form = OF_MODELS[flag][0].removesuffix(" ...")
        for name, value in _pairs(f"--{flag}", form, given.get(flag)):
            models.setdefault(name, {})[argument] = value
            origins[f"models.{name}.{argument}"] = f"--{flag}"
    for name, argument, value in _dotted("--set", "ARGUMENT", given.get("set")):
        models.setdefault(name, {})[argument] = parse_argument(argument, value, "--set")
        origins[f"models.{name}.{argument}"] = "--set"
    ports: dict[str, dict[str, str | int]] = {}
    for name, port, value in _dotted("--member-port", "PORT", given.get("member_port")):
        ports.setdefault(name, {})[port] = int(value) if value.isdecimal() else value
    return Layer({**values, "models": models, "ports": ports}, origins)


def check_known(arguments: Sequence[str]) -> None:
    """Refuse flags that no command describing a deployment takes, with the nearest one.

    Raises:
        ConfigError: there are some.
    """
    if not arguments or arguments[0] not in COMMANDS:
        return
    known = {flag_of(parameter.name) for parameter in parameters()}
    known |= {"--config", "--gpus", "--gpu-gib"}
    problems = []
    value_follows = False
    for argument in arguments[1:]:
        if value_follows:
            value_follows = False
        elif argument.startswith("--") and argument != "--":
            flag, inline, _ = argument.partition("=")
            value_follows = flag in known and not inline
            if flag not in known | SWITCHES:
                problems.append(_unknown(flag, known | SWITCHES))
    if problems:
        raise ConfigError(*problems)


def _unknown(flag: str, known: Iterable[str]) -> str:
    argument = flag.removeprefix("--").replace("-", "_")
    if argument in argument_names():
        return f"{flag}: unknown flag; of a model, it is --set NAME.{argument}=VALUE"
    return f"{flag}: unknown flag{nearest(flag, known)}"


def _pairs(flag: str, form: str, values: Iterable[str] | None) -> Iterator[tuple[str, str]]:
    for given in values or ():
        name, equals, value = given.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"{flag}: wants {form}, got {given!r}")
        yield name, value


def _dotted(flag: str, what: str, values: Iterable[str] | None) -> Iterator[tuple[str, str, str]]:
    """Model, ``what`` and value; a model's name may hold dots itself."""
    for name, value in _pairs(flag, f"NAME.{what}=VALUE", values):
        member, dot, key = name.rpartition(".")
        if not (dot and member and key):
            raise ConfigError(f"{flag}: wants NAME.{what}=VALUE, got '{name}={value}'")
        yield member, key, value


def _json_object(flag: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{flag}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f'{flag}: wants a JSON object such as {{"k": 2}}, got {text}')
    return value
