"""Request bodies: SGLang's models with ``routing``, bounds on numbers, and no unknown fields."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, field_validator, model_validator

from tokenrouter.frontend.bodies import Body, Many, check_lists, wrong
from tokenrouter.frontend.chat_messages import ChatMessage
from tokenrouter.frontend.names import DEFAULT, RoutingOptions
from tokenrouter.frontend.supported import NOT_SERVED
from tokenrouter.frontend.values import (
    Alternatives,
    Biases,
    Choices,
    GrammarText,
    Id,
    Length,
    Minimum,
    MinP,
    Penalty,
    RepetitionPenalty,
    Seed,
    StopIds,
    Stops,
    Temperature,
    TopK,
    TopP,
)
from tokenrouter.subserver.sglang_compat.serving import (
    ChatCompletionRequest,
    CompletionRequest,
    Tool,
)

Texts = Annotated[str, Field(min_length=1)] | Annotated[Many[str], Field(min_length=1)]
Ids = Annotated[Many[int], Field(min_length=1)] | Annotated[Many[Many[int]], Field(min_length=1)]

SHORT = (
    "response_format",
    "session_params",
    "lora_path",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
)
"""Fields of SGLang's models that hold lists."""


def _as_served(schema: dict[str, Any]) -> None:
    """Leave out of a JSON schema what would be refused."""
    schema["additionalProperties"] = False
    for name in NOT_SERVED:
        schema.get("properties", {}).pop(name, None)


class Routed(Body):
    """What every request body has."""

    # Unknown fields are kept, for `supported.check_fields` to refuse them by name.
    model_config = ConfigDict(extra="allow", json_schema_extra=_as_served)

    model: str = DEFAULT
    routing: RoutingOptions | None = None
    seed: Seed | None = None
    """Of the draws of tokens; and of the algorithm's, unless ``routing.seed`` is given."""


class StreamOptions(Body):
    """``stream_options``."""

    model_config = ConfigDict(extra="forbid")

    include_usage: bool | None = False


class OpenAIRequest(Routed):
    """What both OpenAI endpoints have."""

    n: Choices = 1
    stop: Stops | None = None
    stop_token_ids: StopIds | None = None
    stream_options: StreamOptions | None = None
    top_p: TopP = 1.0
    top_k: TopK = -1
    min_p: MinP = 0.0
    min_tokens: Minimum = 0
    frequency_penalty: Penalty = 0.0
    presence_penalty: Penalty = 0.0
    repetition_penalty: RepetitionPenalty = 1.0
    logit_bias: Biases | None = None
    regex: GrammarText | None = None
    ebnf: GrammarText | None = None
    rid: Id | None = None

    @field_validator(*SHORT, mode="before", check_fields=False)
    @classmethod
    def _check_short(cls, value: Any) -> Any:
        return check_lists(value)


class ChatRequest(OpenAIRequest, ChatCompletionRequest):
    """Body of ``/v1/chat/completions``."""

    messages: Annotated[Many[ChatMessage], Field(min_length=1)]
    tools: Many[Tool] | None = None
    temperature: Temperature = 0.7
    max_tokens: Length | None = None
    max_completion_tokens: Length | None = None
    top_logprobs: Alternatives | None = None
    parallel_tool_calls: bool | None = None
    """False: an answer has one tool call at most."""


class TextRequest(OpenAIRequest, CompletionRequest):
    """Body of ``/v1/completions``."""

    prompt: Texts | Ids
    temperature: Temperature = 1.0
    max_tokens: Length | None = 16
    logprobs: Alternatives | None = None
    json_schema: GrammarText | None = None


class SamplingBody(Body):
    """``sampling_params`` of ``/generate``."""

    model_config = ConfigDict(extra="allow", json_schema_extra=_as_served)

    max_new_tokens: Minimum | None = None
    min_new_tokens: Minimum = 0
    n: Choices = 1
    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: TopK = -1
    min_p: MinP = 0.0
    frequency_penalty: Penalty = 0.0
    presence_penalty: Penalty = 0.0
    repetition_penalty: RepetitionPenalty = 1.0
    logit_bias: Biases | None = None
    stop: Stops | None = None
    stop_token_ids: StopIds | None = None
    json_schema: GrammarText | None = None
    regex: GrammarText | None = None
    ebnf: GrammarText | None = None
    structural_tag: GrammarText | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    no_stop_trim: bool = False


class GenerateBody(Routed):
    """Body of ``/generate``, SGLang's native endpoint: one prompt, or a list of them."""

    text: str | Annotated[Many[str], Field(min_length=1)] | None = None
    input_ids: Ids | None = None
    sampling_params: SamplingBody | Many[SamplingBody] | None = None
    return_logprob: bool | Many[bool] | None = None
    top_logprobs_num: Alternatives | Many[Alternatives] | None = None
    return_text_in_logprobs: bool = False
    stream: bool = False
    rid: Id | Many[Id] | None = None

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
        for name in ("sampling_params", "return_logprob", "top_logprobs_num", "rid"):
            value = getattr(self, name)
            if isinstance(value, list) and len(value) != self.prompts:
                raise wrong("a list needs as many entries as there are prompts", name)
        if isinstance(self.sampling_params, list) and len({p.n for p in self.sampling_params}) > 1:
            raise wrong("n must be the same for all prompts", "sampling_params")
        return self
