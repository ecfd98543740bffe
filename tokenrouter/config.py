"""The configuration of a deployment: frozen, checked, and the same in every process.

`load` reads it for the command line; the supervisor hands it to each child as JSON.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tokenrouter.configuration import preflight, sources
from tokenrouter.configuration.model import ModelConfig
from tokenrouter.configuration.values import Name, describe
from tokenrouter.errors import ConfigError

__all__ = ["DETOKENIZER_NAME", "FRONT_END_NAME", "Config", "ModelConfig", "load"]

FRONT_END_NAME = "front-end"
DETOKENIZER_NAME = "detokenizer"


class Config(BaseModel):
    """A whole deployment. Members are numbered in the order of ``models``."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")
    SCALARS: ClassVar[tuple[str, ...]] = (
        "served_name",
        "algorithm",
        "router_threshold",
        "prefill",
        "host",
        "port",
        "socket_dir",
        "seed",
        "max_wait_ms",
        "api_key",
        "max_requests",
        "max_body_bytes",
        "on_failure",
        "max_restarts",
        "restart_window_s",
        "hang_timeout_s",
        "drain_timeout_s",
        "log_level",
        "log_format",
    )
    """Fields that an environment variable ``TOKENROUTER_<FIELD>`` may set."""

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
    """Address the HTTP server binds."""
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
        seen = set()
        for name in (model.name for model in models):
            if name in seen:
                raise ValueError(f"two are named {name!r}; names must differ")
            if name in (FRONT_END_NAME, DETOKENIZER_NAME):
                raise ValueError(f"{name!r} is the name of another process; choose another")
            seen.add(name)
        return models

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names, in order."""
        return tuple(model.name for model in self.models)

    @property
    def tokenizer_path(self) -> Path:
        """The tokenizer that requests are encoded with: the first member's that has one."""
        given = (model.tokenizer_path for model in self.models)
        return next((path for path in given if path), sources.DEMO_MODELS / "small")


def load(
    path: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """The configuration of file ``path``, changed by the environment, then by ``overrides``.

    Args:
        path: a YAML file; None: everything comes from the other two.
        overrides: flags, as `sources.apply_flags` takes them.
        environment: default: this process's.

    Raises:
        ConfigError: it cannot be served; the message names the field and the remedy.
    """
    settings = sources.read_file(path) if path else {}
    variables = sources.read_environment(
        os.environ if environment is None else environment, Config.SCALARS
    )
    overrides = overrides or {}
    settings = sources.apply_flags({**settings, **variables}, overrides)
    settings.setdefault("models", ())
    try:
        config = Config.model_validate(settings)
    except ValidationError as error:
        origins = {
            name: sources.PREFIX + name.upper() for name in variables if name not in overrides
        }
        raise ConfigError(describe(error, settings, Config.model_fields, origins)) from error
    preflight.check(config)
    return config
