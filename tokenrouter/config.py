"""The configuration of a deployment: frozen, checked, and the same in every process.

`load` puts it together from a file, the environment and flags; the supervisor hands it to each
child as JSON.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenrouter.configuration import environment, layers, preflight, sources
from tokenrouter.configuration.deployment import (
    DETOKENIZER_NAME,
    FRONT_END_NAME,
    PLANNER_NAME,
    UNIX_HOST,
    Config,
)
from tokenrouter.configuration.layers import Layer
from tokenrouter.configuration.model import ModelConfig
from tokenrouter.configuration.validation import collecting, validate, with_origins
from tokenrouter.errors import ConfigError

__all__ = [
    "DEMO_CONFIG",
    "DETOKENIZER_NAME",
    "FRONT_END_NAME",
    "PLANNER_NAME",
    "UNIX_HOST",
    "Config",
    "ModelConfig",
    "Reading",
    "load",
    "read",
    "served",
]

DEMO_CONFIG = Path(__file__).parent / "demo" / "demo.yaml"
"""The configuration of the embedded pair."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reading:
    """A configuration, and what there is to say of it.

    Attributes:
        config: the configuration; with problems, wrong fields have their defaults.
        problems: why it cannot be served; each names a field, its origin and the remedy.
        warnings: what works, but perhaps not as meant.
        origins: what set a field, by its dotted path: a flag, a variable, or the file and its line.
        given: the settings themselves, without defaults.
    """

    config: Config | None
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    origins: Mapping[str, str]
    given: Mapping[str, Any]


def load(
    path: Path | None = None,
    overrides: Layer | Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Config:
    """The configuration of file ``path``, changed by the environment, then by ``overrides``.

    Args:
        path: a YAML file; None: everything comes from the other two.
        overrides: flags, as `layers.apply` takes them; or a list of models instead of the
            file's.
        environment: default: this process's.
        defaults: other than the fields', where nobody says anything.

    Raises:
        ConfigError: it cannot be served; every problem names the field and the remedy.
    """
    reading = read(path, overrides, environment, defaults)
    config = served(reading)
    for warning in reading.warnings:
        logger.warning("%s", warning)
    return config


def served(reading: Reading) -> Config:
    """A configuration without problems.

    Raises:
        ConfigError: it has some.
    """
    if reading.problems or reading.config is None:
        raise ConfigError(*reading.problems)
    return reading.config


def read(
    path: Path | None = None,
    overrides: Layer | Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Reading:
    """What `load` loads, with everything there is to say of it.

    Raises:
        ConfigError: it cannot be put together: no such file, no such model.
    """
    flags = overrides if isinstance(overrides, Layer) else Layer(overrides or {})
    variables = os.environ if environment is None else environment
    settings = _gathered(path, flags, variables, defaults or {})
    problems: list[str] = []
    config = _validated(settings.values, problems)
    warnings: list[str] = []
    if config is None:
        preflight.check_parts(settings.values, problems)
    else:
        warnings = preflight.check(config, problems)
    told = with_origins(problems, settings.origins)
    return Reading(config, tuple(told), tuple(warnings), settings.origins, settings.values)


def _gathered(
    path: Path | None, flags: Layer, variables: Mapping[str, str], defaults: Mapping[str, Any]
) -> Layer:
    """The settings of all sources, each in its place."""
    problems: list[str] = []
    of_models = Layer()
    values, places = sources.read_file(path) if path else ({}, {})
    settings = Layer({**defaults, **values}, places)
    new_models, flags = layers.split(flags)
    with collecting(problems):
        settings = layers.apply(settings, environment.read(variables, Config.model_fields))
    settings = layers.apply(settings, new_models)
    with collecting(problems):
        of_models = environment.read_models(variables, [*settings.model_names, *flags.model_names])
    with collecting(problems):
        settings = layers.apply(settings, layers.join(of_models, flags))
    if problems:
        raise ConfigError(*problems)
    return settings


def _validated(settings: Mapping[Any, Any], problems: list[str]) -> Config | None:
    """A configuration to check further, if enough of it is right."""
    entries = settings.get("models", ())
    if not isinstance(entries, list | tuple):
        return validate(Config, settings, "", problems)
    models = [_model(index, entry, problems) for index, entry in enumerate(entries)]
    good = [model for model in models if model is not None]
    complete = len(good) == len(models)
    config = validate(
        Config, {**settings, "models": good}, "", problems, () if complete else ("models",)
    )
    return config if complete else None


def _model(index: int, entry: Any, problems: list[str]) -> ModelConfig | None:
    if not isinstance(entry, Mapping):
        problems.append(
            f"models.{index}: must be a mapping such as {{name: small, ...}}, got {entry!r}"
        )
        return None
    name = entry.get("name")
    where = f"models.{name if isinstance(name, str) else index}"
    return validate(ModelConfig, entry, where, problems, decisive=("engine",))
