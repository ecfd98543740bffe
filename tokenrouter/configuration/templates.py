"""Whether SGLang can load the templates that a model entry names, judged without it.

``chat_template`` and ``completion_template`` name a template of SGLang's own, or a file.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tokenrouter.configuration import sglang_source
from tokenrouter.configuration.model_folder import read_json, read_text, unusable
from tokenrouter.errors import ConfigError

if TYPE_CHECKING:
    from tokenrouter.configuration.model import ModelConfig

SOURCES: Mapping[str, str] = {
    "chat_template": "conversation.py",
    "completion_template": "code_completion_parser.py",
}
"""Where SGLang registers its own templates."""
JINJA = ".jinja"
KEYS: Mapping[str, tuple[str, ...]] = {
    "chat_template": ("name", "system", "user", "assistant", "sep_style", "stop_str"),
    "completion_template": (
        "name",
        "fim_begin_token",
        "fim_middle_token",
        "fim_end_token",
        "fim_position",
    ),
}
"""What SGLang reads of a template that is a JSON file."""


def check(model: ModelConfig) -> None:
    """Look at the templates of one model.

    Raises:
        ConfigError: neither a name nor a file that SGLang can load.
    """
    for argument in SOURCES:
        value = model.sglang.get(argument)
        if value and value not in built_in(argument):
            _check_file(f"models.{model.name}.{argument}", argument, Path(value))


@lru_cache(maxsize=2)
def built_in(argument: str) -> tuple[str, ...]:
    """Names of SGLang's own templates.

    Raises:
        ValueError: SGLang is not installed.
    """
    _, statements = sglang_source.parse(SOURCES[argument])
    calls = [each.value for each in statements if isinstance(each, ast.Expr)]
    registered = [call.args[0] for call in calls if isinstance(call, ast.Call) and call.args]
    return tuple(
        str(keyword.value.value)
        for template in registered
        if isinstance(template, ast.Call)
        for keyword in template.keywords
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant)
    )


def _check_file(field: str, argument: str, path: Path) -> None:
    kinds = (JINJA, ".json") if argument == "chat_template" else (".json",)
    if unusable(path) or not path.is_file() or path.suffix not in kinds:
        raise ConfigError(
            f"{field}: {str(path)[:200]!r} is neither a {' or '.join(kinds)} file nor a template "
            f"of SGLang; give a file, or one of {', '.join(built_in(argument))}"
        )
    if path.suffix == JINJA:
        read_text(path)
    elif missing := set(KEYS[argument]) - read_json(path).keys():
        raise ConfigError(f"{field}: {path} has no {', '.join(sorted(missing))}; add what is there")
