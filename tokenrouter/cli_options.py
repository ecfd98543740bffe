"""The options of commands that describe a deployment: one per field of `Config`, and some more.

Each says what its field says of itself, so that no list of names can lag behind.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from tokenrouter.config import Config

OF_MODELS = {
    "model": ("NAME=PATH ...", "A model's folder; a new name adds a model."),
    "threshold": ("NAME=N ...", "A model's batch threshold."),
    "tp": ("NAME=N ...", "A model's tensor-parallel ranks."),
    "set": ("NAME.ARGUMENT=VALUE ...", "Any argument of a model, SGLang's too; a YAML value."),
    "member_port": ("NAME.PORT=VALUE ...", "Fix a port: input, peer or nccl."),
}
"""Flags that may be repeated or followed by several values: their form, and what they say."""
REPEATABLE = frozenset(f"--{name.replace('_', '-')}" for name in OF_MODELS)
ARGUMENT_OF = {"model": "model_path", "threshold": "threshold", "tp": "tp_size"}
STRUCTURED = frozenset({"models", "ports", "algorithm_args", "algorithms"})
"""Fields of `Config` with flags of another form than their own."""


def with_deployment_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` every flag, in its keyword arguments, for `cli_flags.gather`."""
    own = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    every = [*own, *parameters()]
    command.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in every}
    return command


def flag_of(field: str) -> str:
    """``--max-requests`` for ``max_requests``."""
    return f"--{field.replace('_', '-')}"


def parameters() -> Iterator[inspect.Parameter]:
    """The flags, as parameters of a command."""
    for name, (form, text) in OF_MODELS.items():
        yield _parameter(name, list[str], text, form)
    yield _parameter("algorithm_args", str, "Further arguments of the algorithm.", "JSON")
    text = "More algorithms: {NAME: {algorithm, router_threshold, algorithm_args}}."
    yield _parameter("algorithms", str, text, "JSON")
    for name, field in Config.model_fields.items():
        if name not in STRUCTURED:
            yield _parameter(name, str, _help(field), _form(field))


def _parameter(name: str, kind: Any, text: str, form: str) -> inspect.Parameter:
    option = typer.Option(flag_of(name), help=text, metavar=form)
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
