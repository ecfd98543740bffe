"""One model of a deployment, as its entry in the configuration describes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from tokenrouter.configuration import sglang_args, sglang_choices
from tokenrouter.configuration.sources import parse_yaml
from tokenrouter.configuration.values import Name, StepMs, parse_step_ms, parse_threshold

SHORTEST = 7
"""Tokens that SGLang wants to hold: it keeps six of a request's to itself."""
TIMED_POOL_TOKENS = 1_000_000
TIMED_CONTEXT_LENGTH = 32_768
"""What a timed member has unless its entry says otherwise."""
_TEXT = frozenset({"name", "engine", "model_path", "dtype"})
"""Own fields that are strings, or take one."""


class ModelConfig(BaseModel):
    """One member: a model, the engine that runs it, and how it batches.

    Keys of a YAML entry that are not fields here are SGLang server arguments; they are
    collected in ``sglang``.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        protected_namespaces=(),
        ser_json_inf_nan="constants",
        use_attribute_docstrings=True,
    )

    name: Name
    """What requests and logs call it."""
    engine: Literal["sglang", "timed"] = "sglang"
    """``timed`` needs no weights: a step takes ``step_ms`` and tokens are made up."""
    model_path: Path | None = None
    """A Hugging Face model folder."""
    threshold: Annotated[int | Literal["auto"], BeforeValidator(parse_threshold)] = "auto"
    """Waiting visits that launch a batch, clamped by the live requests; ``auto``: the planner's."""
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

    @field_validator("dtype")
    @classmethod
    def _check_dtype(cls, dtype: str | None) -> str | None:
        if complaint := sglang_choices.complaint("dtype", dtype):
            raise ValueError(complaint)
        return dtype

    @model_validator(mode="after")
    def _check_engine(self) -> ModelConfig:
        if self.engine == "sglang":
            if self.model_path is None:
                raise ValueError("model_path: give the model's folder, or set engine: timed")
            if self.step_ms is not None:
                raise ValueError("step_ms: only for engine: timed; remove it, or set the engine")
            for name in ("context_length", "max_total_tokens"):
                tokens = getattr(self, name)
                if tokens is not None and tokens < SHORTEST:
                    raise ValueError(
                        f"{name}: SGLang cannot serve {tokens} tokens; set {SHORTEST} or more"
                    )
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
            if self.threshold != "auto" and limit is not None and self.threshold > limit:
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


def argument_names() -> Iterator[str]:
    """Everything that a model entry takes, besides its name."""
    yield from (name for name in ModelConfig.model_fields if name not in ("name", "sglang"))
    yield from (name for name in sglang_args.argument_types() if name not in sglang_args.REFUSED)


def parse_argument(name: str, text: str, source: str) -> Any:
    """The value of an argument given as text: a string where it takes one, else YAML.

    Raises:
        ConfigError: no YAML; ``source`` is to blame.
    """
    if name in _TEXT or sglang_args.is_text(name):
        return text
    return parse_yaml(text, source)
