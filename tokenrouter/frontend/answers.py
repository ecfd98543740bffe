"""What endpoints answer, for the OpenAPI document; bodies themselves are written elsewhere."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from tokenrouter.subserver.sglang_compat.serving import ChatCompletionResponse, CompletionResponse


class ErrorDetail(BaseModel):
    """What went wrong; ``param`` is the field at fault, if one is."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """Every error. Operators' actions add what each member said."""

    error: ErrorDetail


class Routing(BaseModel):
    """How a response was routed; ``tokens`` and ``token_models`` by member.

    ``preset``: what the request called the algorithm, if it did.
    """

    preset: str | None = None
    algorithm: str
    router_threshold: float | None
    tokens: dict[str, int]
    hand_overs: int
    token_models: list[list[str]] | list[str] | None = None


class Routed(BaseModel):
    """What answers have in common. ``llm_ratio``: share not written by the first member."""

    routing: Routing
    llm_ratio: float


class ChatAnswer(ChatCompletionResponse, Routed):
    """Of ``/v1/chat/completions``."""


class TextAnswer(CompletionResponse, Routed):
    """Of ``/v1/completions``."""


class MetaInfo(Routed):
    """What `/generate` says of an answer; more where it was asked for."""

    model_config = ConfigDict(extra="allow")

    id: str
    finish_reason: dict[str, Any] | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    weight_version: str


class Generated(BaseModel):
    """One answer of ``/generate``."""

    text: str
    output_ids: list[int]
    meta_info: MetaInfo


GenerateAnswer = Generated | list[Generated]


class Told(BaseModel):
    """What one member did."""

    success: bool
    message: str


class Outcome(Told):
    """What an action did, by member."""

    members: dict[str, Told]
    num_paused_requests: int = 0


class Version(Told):
    """Of ``/update_weight_version``."""

    new_version: str


class WeightVersion(BaseModel):
    """Of ``/get_weight_version``."""

    weight_version: str


class Status(BaseModel):
    """Of health checks, of a pause and of its end."""

    status: str
    message: str = ""


class Aborted(BaseModel):
    """How many requests ended."""

    aborted: int


class Card(BaseModel):
    """A name that requests may use."""

    id: str
    object: str
    created: int
    owned_by: str
    root: str | None
    max_model_len: int | None


class Cards(BaseModel):
    """All names."""

    object: str
    data: list[Card]


class Load(BaseModel):
    """What a member holds."""

    num_reqs: int
    num_visits: int
    num_tokens: int


Loads = dict[str, Load | None]


class ModelInfo(BaseModel):
    """Of ``/get_model_info``."""

    model_path: str
    tokenizer_path: str
    is_generation: bool
    preferred_sampling_params: dict[str, Any] | None
    weight_version: str


class Info(BaseModel):
    """Of ``/get_server_info``: the configuration, and the state of every member."""

    model_config = ConfigDict(extra="allow")

    version: str
    models: list[dict[str, Any]]


class Call(BaseModel):
    """A tool call in a text."""

    tool_index: int
    name: str | None
    parameters: str


class Parsed(BaseModel):
    """Of ``/parse_function_call``."""

    normal_text: str
    calls: list[Call]


class Separated(BaseModel):
    """Of ``/separate_reasoning``."""

    reasoning_text: str | None
    text: str | None
