"""Which values SGLang's command line takes where it takes some only, read without importing it.

Its parser writes them out, names a list of its own, or takes the keys of a table of another file
(the parsers of answers).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from tokenrouter.configuration import sglang_source

OURS: Mapping[str, tuple[Any, ...]] = {"grammar_backend": ("xgrammar", "none")}
"""Arguments of which a routed deployment takes fewer values than SGLang."""
SHARES = ("mem_fraction_static",)
"""Arguments that are parts of a whole."""


def complaint(name: str, value: Any) -> str | None:
    """What is wrong with a value of argument ``name``, of the right type, if it cannot be.

    Raises:
        ValueError: SGLang is not installed.
    """
    if name in SHARES and value is not None and not 0 < value <= 1:
        return f"must be above 0 and at most 1, got {value!r}"
    choices = OURS.get(name) or argument_choices().get(name)
    if choices is None or value is None or value in choices:
        return None
    *others, last = map(str, choices)
    return f"must be {', '.join(others)} or {last}, got {value!r}"


@lru_cache(maxsize=1)
def argument_choices() -> Mapping[str, tuple[Any, ...]]:
    """Field of ``ServerArgs`` to the values that its flag takes; the others take any.

    Raises:
        ValueError: SGLang is not installed.
    """
    _, statements = sglang_source.parse("server_args.py")
    nodes = [node for statement in statements for node in ast.walk(statement)]
    lists = {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    files = {
        alias.name: f"{node.module.removeprefix('sglang.srt.').replace('.', '/')}.py"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    found = {}
    for flag, value in _flags(nodes):
        value = lists.get(value.id, value) if isinstance(value, ast.Name) else value
        if isinstance(value, ast.List):
            found[flag] = tuple(ast.literal_eval(value))
        elif (table := _table(value)) is not None:
            found[flag] = _keys(files[table[0]], *table)
    return found


def _flags(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """The fields whose flags have choices, and these as they are written."""
    for node in nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "add_argument"
        ):
            flag = ast.literal_eval(node.args[0]).removeprefix("--").replace("-", "_")
            yield from ((flag, each.value) for each in node.keywords if each.arg == "choices")


def _table(value: ast.expr) -> tuple[str, str] | None:
    """Class and attribute of ``list(CLASS.ATTRIBUTE.keys())``."""
    parts = ast.unparse(value).removeprefix("list(").removesuffix(".keys())").split(".")
    return (parts[0], parts[1]) if len(parts) == 2 else None


def _keys(file: str, kind: str, attribute: str) -> tuple[str, ...]:
    """The keys of a table that a class of another file has."""
    _, statements = sglang_source.parse(file)
    return next(
        tuple(ast.literal_eval(key) for key in field.value.keys if key is not None)
        for node in statements
        if isinstance(node, ast.ClassDef) and node.name == kind
        for field in node.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and field.target.id == attribute
        and isinstance(field.value, ast.Dict)
    )
