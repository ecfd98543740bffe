"""Whether ``json_model_override_args`` fits the ``config.json`` that it changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tokenrouter.errors import ConfigError

COUNTS = ("num_", "hidden_size", "intermediate_size", "vocab_size", "head_dim", "max_position")
"""How fields begin that count something of which a model has one at least."""


def check(field: str, text: Any, settings: Mapping[str, Any]) -> None:
    """Compare the values of ``text`` with those they replace.

    Args:
        field: what to blame.
        text: the argument; anything but a string was refused before.
        settings: the model's ``config.json``.

    Raises:
        ConfigError: no JSON object, or a value that no model can have there.
    """
    if text is None:
        return
    try:
        changes = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{field}: not JSON: {error}") from error
    if not isinstance(changes, dict):
        raise ConfigError(f"{field}: wants a JSON object of config.json's fields, got {text}")
    problems = [
        f"{field}: {name}: {complaint}"
        for name, value in changes.items()
        if (complaint := _complaint(name, settings.get(name), value))
    ]
    if problems:
        raise ConfigError(*problems)


def _complaint(name: str, old: Any, new: Any) -> str | None:
    """What is wrong with a new value; nothing that cannot be told for sure."""
    shown = f"the model's own value is {json.dumps(old)}, got {json.dumps(new)}"
    if old is None or new is None or isinstance(new, list):  # some fields take one or several
        return None
    if _kind(old) is not _kind(new):
        return f"must be of the same kind; {shown}"
    if name.startswith(COUNTS) and isinstance(old, int) and old > 0:
        return None if isinstance(new, int) and new > 0 else f"must be 1 at least; {shown}"
    return None


def _kind(value: Any) -> type:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float if number else type(value)
