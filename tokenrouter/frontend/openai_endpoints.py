"""``/v1/chat/completions`` and ``/v1/completions``."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from tokenrouter.errors import RequestError, UnsupportedError
from tokenrouter.frontend.exchange import Exchange
from tokenrouter.frontend.protocol import ChatRequest, TextRequest
from tokenrouter.frontend.serving import RoutedServing
from tokenrouter.subserver.sglang_compat.serving import (
    GenerateReqInput,
    OpenAIServingChat,
    OpenAIServingCompletion,
)

TEMPLATE_ARGUMENTS = frozenset(
    {
        "conversation",
        "messages",
        "tools",
        "documents",
        "chat_template",
        "add_generation_prompt",
        "continue_final_message",
        "tokenize",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
    }
)
"""Names that ``chat_template_kwargs`` may not use: they mean something to the tokenizer."""


def _characters(message: Any) -> int:
    content = message.content or ""
    return len(content) if isinstance(content, str) else sum(len(part.text) for part in content)


class RoutedChat(RoutedServing, OpenAIServingChat):
    """``/v1/chat/completions``."""

    prompt_field = "messages"
    id_prefix = "chatcmpl"
    chunk_object = "chat.completion.chunk"

    def _open(self, request: Any) -> Exchange:
        reserved = TEMPLATE_ARGUMENTS.intersection(request.chat_template_kwargs or ())
        if reserved:
            field = f"chat_template_kwargs.{min(reserved)}"
            raise RequestError(f"{field}: cannot be set by a request", field)
        for i, message in enumerate(request.messages):
            parts = message.content if isinstance(message.content, list) else ()
            if any(part.type != "text" for part in parts):
                field = f"messages[{i}].content"
                raise UnsupportedError(f"{field}: only text is served", field)
        exchange = super()._open(request)
        self.tokenizer_manager.check_text(exchange, sum(map(_characters, request.messages)))
        return exchange

    def _process_streaming_logprobs(self, content: dict[str, Any], n_prev_token: int) -> Any:
        """As a whole answer's: SGLang gives the first token's alternatives to all of a chunk."""
        fields = ("output_token_logprobs", "output_top_logprobs")
        new = {name: content["meta_info"][name][n_prev_token:] for name in fields}
        return self._process_response_logprobs({"meta_info": new})

    def _chunks(self, work: GenerateReqInput, request: ChatRequest) -> AsyncIterator[str]:
        chunks: AsyncIterator[str] = self._generate_chat_stream(work, request, None)
        return chunks

    def _build(self, request: ChatRequest, answers: Sequence[dict[str, Any]]) -> Any:
        return self._build_chat_response(request, answers, int(time.time()))


class RoutedCompletion(RoutedServing, OpenAIServingCompletion):
    """``/v1/completions``."""

    prompt_field = "prompt"
    id_prefix = "cmpl"
    chunk_object = "text_completion"

    def _open(self, request: Any) -> Exchange:
        if request.echo and request.stream:
            raise UnsupportedError("echo: not served in streams; leave out one of them", "echo")
        return super()._open(request)

    def _validate_request(self, request: TextRequest) -> str | None:
        # SGLang takes a prompt of nothing but id 0 for an empty one.
        return None if request.prompt else "the prompt is empty"

    def _prompts(self, request: TextRequest) -> int:
        prompt = request.prompt
        return 1 if isinstance(prompt, str) or isinstance(prompt[0], int) else len(prompt)

    def _chunks(self, work: GenerateReqInput, request: TextRequest) -> AsyncIterator[str]:
        chunks: AsyncIterator[str] = self._generate_completion_stream(work, request, None)
        return chunks

    def _build(self, request: TextRequest, answers: Sequence[dict[str, Any]]) -> Any:
        return self._build_completion_response(request, answers, int(time.time()))
