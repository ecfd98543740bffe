"""Algorithms that requests may ask for by a name of the deployment's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers import registry, trial
from tokenrouter.schedulers.signals import Declared


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


def declared(presets: Iterable[Preset], members: Sequence[str], index: int) -> list[Declared]:
    """The signals that ``presets`` ask of member ``index``, each once.

    Raises:
        ConfigError: an algorithm cannot be made, or asked for its signals.
    """
    found: dict[Declared, None] = {}
    for each in presets:
        scheduler = registry.create(
            each.algorithm, members, each.router_threshold, each.algorithm_args
        )
        found |= dict.fromkeys(trial.declared(scheduler, each.algorithm, index))
    return list(found)


def check_algorithm(preset: Preset, members: tuple[str, ...]) -> None:
    """Make sure that the algorithm of ``preset`` can be made, and that its hooks can be called.

    Raises:
        ConfigError: they cannot.
    """
    scheduler = registry.create(
        preset.algorithm, members, preset.router_threshold, preset.algorithm_args
    )
    trial.check_hooks(scheduler, preset.algorithm)
    for member in range(len(members)):
        trial.declared(scheduler, preset.algorithm, member)


def check(presets: Mapping[str, Preset], members: tuple[str, ...]) -> None:
    """Make sure that every preset can serve requests.

    Raises:
        ConfigError: some cannot; each problem names the field.
    """
    problems: list[str] = []
    for name, preset in presets.items():
        built_in = registry.BUILT_IN.get(name)
        if built_in is not None and preset.algorithm not in (name, built_in):
            problems.append(
                f"algorithms.{name}: would hide the built-in algorithm {name!r} behind "
                f"{preset.algorithm!r}; give it another name, or leave out its algorithm"
            )
        try:
            check_algorithm(preset, members)
        except ConfigError as error:
            problems.extend(f"algorithms.{name}.{problem}" for problem in error.problems)
    if problems:
        raise ConfigError(*problems)
