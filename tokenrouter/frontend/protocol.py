"""Request bodies: SGLang's models with ``routing``, bounds on numbers, and no unknown fields."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from tokenrouter.frontend.names import DEFAULT, RoutingOptions
from tokenrouter.subserver.sglang_compat.serving import ChatCompletionRequest, CompletionRequest

MOST_CHOICES = 128
"""Largest ``n``, as OpenAI's."""


def _top_k(value: int) -> int:
    if value < 1 and value != -1:
        raise ValueError("Input should be at least 1, or -1 for the whole vocabulary")
    return value


Temperature = Annotated[float, Field(ge=0, allow_inf_nan=False)]
TopP = Annotated[float, Field(gt=0, le=1)]
TopK = Annotated[int, AfterValidator(_top_k)]
MinP = Annotated[float, Field(ge=0, le=1)]
Choices = Annotated[int, Field(ge=1, le=MOST_CHOICES)]
Length = Annotated[int, Field(ge=1)]
Stop = Annotated[str, Field(min_length=1, max_length=1024)]
Stops = Stop | Annotated[list[Stop], Field(max_length=64)]
TokenId = Annotated[int, Field(ge=0)]
Id = Annotated[str, Field(min_length=1, max_length=256)]


class Routed(BaseModel):
    """What every request body has."""

    # Unknown fields are kept, for `supported.check_fields` to refuse them by name.
    model_config = ConfigDict(extra="allow", protected_namespaces=())

    model: str = DEFAULT
    routing: RoutingOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_object(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            raise ValueError("the request must be a JSON object")
        return body


class OpenAIRequest(Routed):
    """What both OpenAI endpoints have.

    ``seed`` seeds the draws of tokens, and routing unless ``routing.seed`` does.
    """

    n: Choices = 1
    seed: Annotated[int | None, Field(ge=-(2**63), lt=2**63)] = None
    stop: Stops | None = None
    stop_token_ids: list[TokenId] | None = None
    top_p: TopP = 1.0
    top_k: TopK = -1
    min_p: MinP = 0.0
    rid: Id | None = None


class ChatRequest(OpenAIRequest, ChatCompletionRequest):
    """Body of ``/v1/chat/completions``."""

    temperature: Temperature = 0.7
    max_tokens: Length | None = None
    max_completion_tokens: Length | None = None


class TextRequest(OpenAIRequest, CompletionRequest):
    """Body of ``/v1/completions``."""

    temperature: Temperature = 1.0
    max_tokens: Length | None = 16


class SamplingBody(BaseModel):
    """``sampling_params`` of ``/generate``."""

    model_config = ConfigDict(extra="allow")

    max_new_tokens: Annotated[int | None, Field(ge=0)] = None
    n: Choices = 1
    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: TopK = -1
    min_p: MinP = 0.0
    stop: Stops | None = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    no_stop_trim: bool = False


class GenerateBody(Routed):
    """Body of ``/generate``, SGLang's native endpoint: one prompt, or a list of them."""

    text: str | Annotated[list[str], Field(min_length=1)] | None = None
    input_ids: (
        Annotated[list[int], Field(min_length=1)]
        | Annotated[list[list[int]], Field(min_length=1)]
        | None
    ) = None
    sampling_params: SamplingBody | list[SamplingBody] | None = None
    stream: bool = False
    rid: Id | list[Id] | None = None

    @property
    def prompts(self) -> int | None:
        """Length of the list of prompts; None for a single one."""
        if self.text is not None:
            return None if isinstance(self.text, str) else len(self.text)
        ids = self.input_ids or []
        return None if isinstance(ids[0], int) else len(ids)

    @model_validator(mode="after")
    def _check_batch(self) -> GenerateBody:
        if (self.text is None) == (self.input_ids is None):
            raise ValueError("give one of text and input_ids")
        for name, value in (("sampling_params", self.sampling_params), ("rid", self.rid)):
            if isinstance(value, list) and len(value) != self.prompts:
                raise ValueError(f"{name}: a list needs as many entries as there are prompts")
        if isinstance(self.sampling_params, list) and len({p.n for p in self.sampling_params}) > 1:
            raise ValueError("sampling_params: n must be the same for all prompts")
        return self
