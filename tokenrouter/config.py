"""The configuration of a deployment: frozen, checked, and the same in every process.

`load` reads it for the command line; the supervisor hands it to each child as JSON.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tokenrouter.configuration import environment, preflight, sources
from tokenrouter.configuration.model import ModelConfig
from tokenrouter.configuration.sglang_args import Wrong
from tokenrouter.configuration.sources import Layer
from tokenrouter.configuration.validation import SECRETS, collecting, validate, with_origins
from tokenrouter.configuration.values import Name
from tokenrouter.errors import ConfigError

__all__ = [
    "DEMO_CONFIG",
    "DETOKENIZER_NAME",
    "FRONT_END_NAME",
    "Config",
    "ModelConfig",
    "Reading",
    "load",
    "read",
]

logger = logging.getLogger(__name__)

FRONT_END_NAME = "front-end"
DETOKENIZER_NAME = "detokenizer"
UNIX_HOST = "unix"
"""The host that stands for ``http.sock`` in the deployment's private directory."""
DEMO_CONFIG = Path(__file__).parent / "demo" / "demo.yaml"
"""The configuration of the embedded pair."""


class Config(BaseModel):
    """A whole deployment. Members are numbered in the order of ``models``."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        ser_json_inf_nan="constants",
        use_attribute_docstrings=True,  # what the flags say of themselves
    )
    served_name: Name = "tokenrouter"
    """The model name of routed requests."""
    algorithm: str = "single"
    """A registered routing algorithm, or ``module:Class``."""
    algorithm_args: Mapping[str, Any] = {}
    """Further keyword arguments of the algorithm."""
    router_threshold: float | None = None
    """The algorithm's main setting; None: its default."""
    prefill: Literal["lazy", "eager"] = "lazy"
    """``eager``: every member computes a prompt at once, before control reaches it."""
    host: str = "127.0.0.1"
    """Address the HTTP server binds; ``unix``: the socket http.sock in its private directory."""
    port: int = Field(30000, ge=0, le=65535)
    """TCP port of the HTTP server; 0: a free one."""
    models: tuple[ModelConfig, ...]
    """The members."""
    ports: Mapping[str, Mapping[str, str | int]] = {}
    """Addresses to fix: member name to port name (`ipc.ports.MemberPorts`) to address."""
    socket_dir: Path | None = None
    """Private directory of the deployment's sockets; None: a new temporary one."""
    seed: int = Field(0, ge=-(2**63), lt=2**63)
    """Of the algorithm's random draws."""
    max_wait_ms: float | None = Field(None, gt=0)
    """Longest wait for a threshold, a safety net; None: ten steps, at least a second."""
    api_key: str | None = Field(None, min_length=1, repr=False)
    """Clients must send it as a bearer token; None: anybody is served."""
    max_requests: int = Field(2048, ge=1)
    """Requests held at once, waiting ones included; more are refused with status 429."""
    max_body_bytes: int = Field(32 * 1024 * 1024, ge=1)
    """Largest body of an HTTP request; a larger one is refused with status 413."""
    on_failure: Literal["restart", "stop"] = "restart"
    """What the death of a process leads to: it is started again, or the server stops."""
    max_restarts: int = Field(3, ge=0)
    """Restarts of one process within ``restart_window_s``; one more, and the server stops."""
    restart_window_s: float = Field(600.0, gt=0)
    """Seconds after which a restart is forgotten."""
    hang_timeout_s: float = Field(60.0, gt=0)
    """Seconds without a sign of life after which a process is killed, as if it had died."""
    drain_timeout_s: float = Field(30.0, ge=0)
    """Seconds that requests have to finish after the first SIGTERM."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Of every process."""
    log_format: Literal["text", "json"] = "text"
    """``json``: one JSON object a line."""

    @field_validator("models")
    @classmethod
    def _check_models(cls, models: tuple[ModelConfig, ...]) -> tuple[ModelConfig, ...]:
        if not models:
            raise ValueError(
                "none configured; give --config FILE, --model NAME=PATH or --demo on the command "
                "line, or list models in the file"
            )
        counts = Counter(model.name for model in models)
        problems = [
            f"two are named {name!r}; names must differ" for name in counts - Counter({*counts})
        ]
        problems += [
            f"{name!r} is the name of another process; choose another"
            for name in (FRONT_END_NAME, DETOKENIZER_NAME)
            if name in counts
        ]
        if problems:
            raise Wrong(*problems)
        return models

    def public(self) -> dict[str, Any]:
        """Its settings without secrets, for anything that is shown."""
        return self.model_dump(exclude=set(SECRETS))

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names, in order."""
        return tuple(model.name for model in self.models)

    @property
    def tokenizer_path(self) -> Path:
        """The tokenizer that requests are encoded with: the first member's that has one."""
        given = (model.tokenizer_path for model in self.models)
        return next((path for path in given if path), sources.DEMO_MODELS / "small")


@dataclass(frozen=True, slots=True)
class Reading:
    """A configuration, and what there is to say of it.

    Attributes:
        config: the configuration; with problems, wrong fields have their defaults.
        problems: why it cannot be served; each names a field, its origin and the remedy.
        warnings: what works, but perhaps not as meant.
        origins: what set a field, by its dotted path, where that was not the file.
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
        overrides: flags, as `sources.apply` takes them; or a list of models instead of the
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
    warnings = preflight.check(config, problems) if config is not None else []
    told = with_origins(problems, settings.origins)
    return Reading(config, tuple(told), tuple(warnings), settings.origins, settings.values)


def _gathered(
    path: Path | None, flags: Layer, variables: Mapping[str, str], defaults: Mapping[str, Any]
) -> Layer:
    """The settings of all sources, each in its place."""
    problems: list[str] = []
    of_models = Layer()
    settings = sources.read_file(path) if path else Layer()
    settings = Layer({**defaults, **settings.values})
    new_models, flags = sources.split(flags)
    with collecting(problems):
        settings = sources.apply(settings, environment.read(variables, Config.model_fields))
    settings = sources.apply(settings, new_models)
    with collecting(problems):
        of_models = environment.read_models(variables, [*settings.model_names, *flags.model_names])
    with collecting(problems):
        settings = sources.apply(settings, sources.join(of_models, flags))
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
