"""A whole deployment, as its configuration describes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from tokenrouter.configuration.model import ModelConfig
from tokenrouter.configuration.presets import Preset, declared, parse_presets
from tokenrouter.configuration.sglang_args import Wrong
from tokenrouter.configuration.sources import DEMO_MODELS
from tokenrouter.configuration.validation import SECRETS
from tokenrouter.configuration.values import Key, LegalPath, Name, Objective, parse_objective
from tokenrouter.ipc.operations import LONGEST_TABLE
from tokenrouter.schedulers.signals import Declared

FRONT_END_NAME = "front-end"
DETOKENIZER_NAME = "detokenizer"
PLANNER_NAME = "planner"
UNIX_HOST = "unix"
"""The host that stands for ``http.sock`` in the deployment's private directory."""


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
    algorithms: Annotated[Mapping[Name, Preset], BeforeValidator(parse_presets)] = {}
    """More algorithms, which requests ask for as ``NAME:ALGORITHM``."""
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
    socket_dir: LegalPath | None = None
    """Private directory of the deployment's sockets; None: a new temporary one."""
    seed: int = Field(0, ge=-(2**63), lt=2**63)
    """Of the algorithm's random draws."""
    max_wait_ms: float | None = Field(None, gt=0)
    """Longest wait for a threshold; None: ten of the longest steps of any member; inf: none."""
    objective: Annotated[Objective, BeforeValidator(parse_objective)] = "throughput"
    """What automatic thresholds aim at: throughput, or that within ``itl_p99_ms: X``."""
    record_decisions: LegalPath | None = None
    """Folder for a log of every routing decision, to be replayed; None: none is kept."""
    api_key: Key | None = Field(None, min_length=1, repr=False)
    """Clients must send it as a bearer token; None: anybody is served."""
    max_requests: int = Field(2048, ge=1)
    """Requests held at once, waiting ones included; more are refused with status 429."""
    max_body_bytes: int = Field(32 * 1024 * 1024, ge=1)
    """Largest body of an HTTP request; a larger one is refused with status 413."""
    max_body_values: int = Field(1_200_000, ge=1)
    """Most JSON values in one (`frontend.weight`); more are refused with status 413."""
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
            for name in (FRONT_END_NAME, DETOKENIZER_NAME, PLANNER_NAME)
            if name in counts
        ]
        given = [each.threshold for each in models if each.threshold != "auto"]
        # What is planned extends these: a row for each number of requests that they clamp at.
        if len(given) < len(models) and sum(given) - len(given) >= LONGEST_TABLE:
            problems.append(
                f"thresholds of {sum(given)} in all are too high beside automatic ones; lower "
                f"them to {LONGEST_TABLE - 1 + len(given)} in all, or set a number for every model"
            )
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
    def own(self) -> Preset:
        """How requests are routed that ask for no algorithm."""
        return Preset(
            algorithm=self.algorithm,
            router_threshold=self.router_threshold,
            algorithm_args=self.algorithm_args,
        )

    def declared(self, index: int) -> list[Declared]:
        """The signals that its algorithms ask of member ``index``: whose networks it loads.

        Raises:
            ConfigError: an algorithm cannot be made.
        """
        return declared((self.own, *self.algorithms.values()), self.names, index)

    @property
    def planned(self) -> bool:
        """Whether thresholds are set while it serves: by a process of its own, the planner."""
        return len(self.models) > 1 and any(each.threshold == "auto" for each in self.models)

    @property
    def itl_p99_ms(self) -> float | None:
        """The longest gap between tokens that 99 % may have, if the objective sets one."""
        return None if self.objective == "throughput" else self.objective["itl_p99_ms"]

    @property
    def first_thresholds(self) -> tuple[int, ...]:
        """Of each member; automatic ones start at 1."""
        return tuple(1 if each.threshold == "auto" else each.threshold for each in self.models)

    @property
    def tokenizer_path(self) -> Path:
        """The tokenizer that requests are encoded with: the first member's that has one."""
        given = (model.tokenizer_path for model in self.models)
        return next((path for path in given if path), DEMO_MODELS / "small")
