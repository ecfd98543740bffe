"""The flags that describe a deployment: one per field of `Config`, and some that name models.

From ``--threshold small=1 large=3`` to the layer of settings that `config.read` takes.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from tokenrouter.config import Config
from tokenrouter.configuration.model import argument_names, parse_argument
from tokenrouter.configuration.sglang_args import nearest
from tokenrouter.configuration.sources import Layer
from tokenrouter.errors import ConfigError

OF_MODELS = {
    "model": ("NAME=PATH ...", "A model's folder; a new name adds a model."),
    "threshold": ("NAME=N ...", "A model's batch threshold."),
    "tp": ("NAME=N ...", "A model's tensor-parallel ranks."),
    "set": ("NAME.ARGUMENT=VALUE ...", "Any argument of a model, SGLang's too; a YAML value."),
    "member_port": ("NAME.PORT=VALUE ...", "Fix a port: input, peer or nccl."),
}
"""Flags that may be repeated or followed by several values: their form, and what they say."""
ARGUMENT_OF = {"model": "model_path", "threshold": "threshold", "tp": "tp_size"}
STRUCTURED = frozenset({"models", "ports", "algorithm_args"})
"""Fields of `Config` with flags of another form than their own."""
REPEATABLE = frozenset({"--model", "--threshold", "--tp", "--set", "--member-port"})
COMMANDS = frozenset({"serve", "check", "config"})
"""Commands that take these flags."""
SWITCHES = frozenset({"--demo", "--json", "--help"})
"""Further flags of theirs, without a value."""


def with_deployment_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` every flag, in its keyword arguments; ``gather`` makes sense of them."""
    own = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    parameters = [*own, *_parameters()]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


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
        origins[name] = _flag(name)
    if "algorithm_args" in values:
        values["algorithm_args"] = _json_object("--algorithm-args", values["algorithm_args"])
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
    known = {_flag(parameter.name) for parameter in _parameters()}
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


def _flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _parameters() -> Iterator[inspect.Parameter]:
    for name, (form, text) in OF_MODELS.items():
        yield _parameter(name, list[str], text, form)
    yield _parameter("algorithm_args", str, "Further arguments of the algorithm.", "JSON")
    for name, field in Config.model_fields.items():
        if name not in STRUCTURED:
            yield _parameter(name, str, _help(field), _form(field))


def _parameter(name: str, kind: Any, text: str, form: str) -> inspect.Parameter:
    option = typer.Option(_flag(name), help=text, metavar=form)
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _help(field: FieldInfo) -> str:
    text = (field.description or "").replace("``", "").replace("\n", " ")
    if field.default is None:
        return text
    return f"{text} [default: {field.default}]"


def _form(field: FieldInfo) -> str:
    """How a field's value looks, for the reader of ``--help``."""
    kind = field.annotation
    kinds = [each for each in get_args(kind) or (kind,) if each is not type(None)]
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    names = {int: "N", float: "X", Path: "FOLDER"}
    return names.get(kinds[0], "TEXT")


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
