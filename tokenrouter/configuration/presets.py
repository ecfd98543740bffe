"""Algorithms that requests may ask for by a name of the deployment's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers import registry


class Preset(BaseModel):
    """An algorithm with its settings, as the deployment's own ``algorithm`` has them."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")
    algorithm: str
    """In the configuration, that of its name if nothing is said."""
    router_threshold: float | None = None
    algorithm_args: Mapping[str, Any] = {}


def parse_presets(value: Any) -> Any:
    """``value`` with the algorithm of each preset, which is that of its name by default."""
    if not isinstance(value, Mapping):
        return value
    return {
        name: {"algorithm": name, **(entry or {})}
        if entry is None or isinstance(entry, Mapping)
        else entry
        for name, entry in value.items()
    }


def check(presets: Mapping[str, Preset], members: tuple[str, ...]) -> None:
    """Make sure that every preset can serve requests.

    Raises:
        ConfigError: some cannot; each problem names the field.
    """
    problems: list[str] = []
    for name, preset in presets.items():
        try:
            registry.create(
                preset.algorithm, members, preset.router_threshold, preset.algorithm_args
            )
        except ConfigError as error:
            problems.extend(f"algorithms.{name}.{problem}" for problem in error.problems)
    if problems:
        raise ConfigError(*problems)
