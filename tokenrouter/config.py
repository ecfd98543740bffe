"""The configuration of a deployment: frozen, checked, and the same in every process.

`load` reads it for the command line; the supervisor hands it to each child as JSON.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from tokenrouter.configuration import preflight, sglang_args, sources
from tokenrouter.configuration.values import StepMs, describe, legal_name, parse_step_ms
from tokenrouter.errors import ConfigError

Name = Annotated[str, AfterValidator(legal_name)]
FRONT_END_NAME = "front-end"
DETOKENIZER_NAME = "detokenizer"


class ModelConfig(BaseModel):
    """One member: a model, the engine that runs it, and how it batches.

    Keys of a YAML entry that are not fields here are SGLang server arguments; they are
    collected in ``sglang``.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), ser_json_inf_nan="constants"
    )

    name: Name
    """What requests and logs call it."""
    engine: Literal["sglang", "timed"] = "sglang"
    """``timed`` needs no weights: a step takes ``step_ms`` and tokens are made up."""
    model_path: Path | None = None
    """A Hugging Face model folder."""
    threshold: int = Field(1, ge=1)
    """Waiting visits that launch a batch; clamped by the live requests at run time."""
    step_ms: Annotated[StepMs | None, BeforeValidator(parse_step_ms)] = None
    """Milliseconds of a step (timed only): a number, ``{base, per_request}``, ``{batch: ms}``."""
    max_total_tokens: int | None = Field(None, ge=1)
    """KV tokens of the pool; None: the engine decides."""
    max_batch: int = Field(256, ge=1)
    """Most visits in one step."""
    chunked_prefill_size: int = Field(512, ge=1)
    """Most tokens one step feeds beyond one per ready visit."""
    context_length: int | None = Field(None, ge=1)
    """Longest request, prompt and output; None: the model's own limit."""
    tp_size: int = Field(1, ge=1)
    """Tensor-parallel ranks."""
    dtype: str | None = None
    """Of the weights, as SGLang names it."""
    sglang: Mapping[str, Any] = {}
    """Every other SGLang server argument."""

    @model_validator(mode="before")
    @classmethod
    def _collect_sglang(cls, entry: Any) -> Any:
        if not isinstance(entry, Mapping):
            return entry
        own = {key: value for key, value in entry.items() if key in cls.model_fields}
        rest = {str(key): value for key, value in entry.items() if key not in cls.model_fields}
        return {**own, "sglang": {**own.get("sglang", {}), **rest}} if rest else own

    @field_validator("sglang")
    @classmethod
    def _check_sglang(cls, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        sglang_args.check(arguments, cls.model_fields)
        return arguments

    @model_validator(mode="after")
    def _check_engine(self) -> ModelConfig:
        if self.engine == "sglang":
            if self.model_path is None:
                raise ValueError("model_path: give the model's folder, or set engine: timed")
            if self.step_ms is not None:
                raise ValueError("step_ms: only for engine: timed; remove it, or set the engine")
            return self
        if self.step_ms is None:
            raise ValueError("step_ms: engine: timed needs it, for example step_ms: 6.0")
        if self.dtype is not None or self.tp_size != 1 or self.sglang:
            given = next(iter(self.sglang), "tp_size" if self.dtype is None else "dtype")
            raise ValueError(f"{given}: engine: timed has no weights; remove it")
        return self

    @model_validator(mode="after")
    def _check_threshold(self) -> ModelConfig:
        limits = {
            "max_batch": self.max_batch,
            "max_total_tokens": self.max_total_tokens,
            "max_running_requests": self.sglang.get("max_running_requests"),
        }
        for name, limit in limits.items():
            if limit is not None and self.threshold > limit:
                raise ValueError(
                    f"threshold: {self.threshold} visits can never wait here, as {name} is "
                    f"{limit}; lower the threshold or raise {name}"
                )
        return self

    @property
    def tokenizer_path(self) -> Path | None:
        """The folder of this model's tokenizer."""
        given = self.sglang.get("tokenizer_path")
        return self.model_path if given is None else Path(given)


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
        "log_level",
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
    models: tuple[ModelConfig, ...] = ()
    """The members."""
    ports: Mapping[str, Mapping[str, str | int]] = {}
    """Addresses to fix: member name to port name (`ipc.ports.MemberPorts`) to address."""
    socket_dir: Path | None = None
    """Private directory of the deployment's sockets; None: a new temporary one."""
    seed: int = Field(0, ge=-(2**63), lt=2**63)
    """Of the algorithm's random draws."""
    max_wait_ms: float | None = Field(None, gt=0)
    """Longest wait for a threshold, a safety net; None: ten steps, at least a second."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Of every process."""

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
