"""What algorithms with a trained network have in common; the network itself is the member's."""

from __future__ import annotations

import os
from pathlib import Path

from tokenrouter.errors import ConfigError


def trained_file(argument: str, value: object, what: str) -> str:
    """The absolute path that ``algorithm_args.ARGUMENT`` names: ``what`` is there.

    A member loads it when it starts (`signals.OfNetworks`); here nothing is read.

    Raises:
        ConfigError: nothing is there.
    """
    field = f"algorithm_args.{argument}"
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise ConfigError(f"{field}: got {value!r}; give the path of {what}")
    try:
        path = Path(value).expanduser().absolute()
        exists = path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{field}: {str(value)[:200]!r} cannot be used: {error}") from error
    if not exists:
        raise ConfigError(f"{field}: {path} does not exist; give the path of {what}")
    return str(path)
