"""Checks of what a configuration gives an algorithm as ``algorithm_args``."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection

from tokenrouter.errors import ConfigError

MAX = sys.float_info.max


def whole_number(name: str, value: object, low: int) -> int:
    """``value``, an int of at least ``low``.

    Raises:
        ConfigError: it is none.
    """
    if type(value) is not int or value < low:
        raise ConfigError(
            f"algorithm_args.{name}: must be a whole number of at least {low}, got {value!r}"
        )
    return value


def number(name: str, value: object, low: float = float("-inf")) -> float:
    """``value``, a number of at least ``low``.

    Raises:
        ConfigError: it is none, or an int that no float can hold.
    """
    if type(value) not in (int, float):
        given = math.nan
    else:
        try:
            given = float(value)  # type: ignore[arg-type]
        except OverflowError as error:
            raise ConfigError(f"algorithm_args.{name}: its size is beyond {MAX:g}") from error
    if not given >= low:
        least = f" of at least {low:g}" if low > float("-inf") else ""
        raise ConfigError(f"algorithm_args.{name}: must be a number{least}, got {value!r}")
    return given


def choice(name: str, value: object, known: Collection[str]) -> str:
    """``value``, one of ``known``.

    Raises:
        ConfigError: it is none of them.
    """
    if not isinstance(value, str) or value not in known:
        raise ConfigError(
            f"algorithm_args.{name}: must be one of {', '.join(known)}, got {value!r}"
        )
    return value


def text(name: str, value: object) -> str:
    """``value``, a string that is not empty.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(value, str) or not value:
        raise ConfigError(f"algorithm_args.{name}: must be a text of some length, got {value!r}")
    return value


def flag(name: str, value: object) -> bool:
    """``value``, true or false.

    Raises:
        ConfigError: it is neither.
    """
    if not isinstance(value, bool):
        raise ConfigError(f"algorithm_args.{name}: must be true or false, got {value!r}")
    return value
