"""``/v1/chat/completions`` and ``/v1/completions``."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from tokenrouter.errors import RequestError, UnsupportedError
from tokenrouter.frontend.call_reader import CallReader, FirstCall, read_calls
from tokenrouter.frontend.constraints import check_grammar
from tokenrouter.frontend.exchange import Exchange
from tokenrouter.frontend.forced_calls import ForcedCalls, forced_calls
from tokenrouter.frontend.placement import last_text
from tokenrouter.frontend.protocol import ChatRequest, OpenAIRequest, TextRequest
from tokenrouter.frontend.serving import RoutedServing
from tokenrouter.frontend.stream_logprobs import token_logprobs, with_logprobs
from tokenrouter.frontend.tool_use import check_tools
from tokenrouter.subserver.sglang_compat.serving import (
    ChoiceLogprobs,
    FunctionCallParser,
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
        "self",
    }
)
"""Names that ``chat_template_kwargs`` may not use: they mean something to the tokenizer."""


def _characters(message: Any) -> int:
    content = message.content or ""
    return len(content) if isinstance(content, str) else sum(len(part.text) for part in content)


def _ids(prompt: Any) -> Sequence[Sequence[int]]:
    """The prompts of a completion that are given as token ids."""
    if isinstance(prompt[0], str):
        return ()
    return [prompt] if isinstance(prompt[0], int) else prompt


def _take_calls(choice: Any, forced: ForcedCalls) -> None:
    """Make calls of the content of an answer."""
    rest, calls = read_calls(forced, choice.message.content or "")
    if calls:
        choice.message.content = rest or None
        choice.message.tool_calls = calls
        if choice.finish_reason == "stop":
            choice.finish_reason, choice.matched_stop = "tool_calls", None


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
        if request.top_logprobs and not request.logprobs:
            raise RequestError("top_logprobs: needs logprobs: true", "top_logprobs")
        exchange = super()._open(request)
        exchange.last_message = last_text(request.messages)
        self.tokenizer_manager.check_text(exchange, sum(map(_characters, request.messages)))
        return exchange

    def _grammar_field(self, request: Any) -> str | None:
        parser = self.tokenizer_manager.server_args.tool_call_parser
        return check_tools(request, parser, super()._grammar_field(request))

    def _forced(self, request: ChatRequest) -> ForcedCalls | None:
        return forced_calls(request, self.tokenizer_manager.server_args.tool_call_parser)

    def _convert(self, request: OpenAIRequest, exchange: Exchange) -> GenerateReqInput:
        forced = self._forced(request) if isinstance(request, ChatRequest) else None
        if forced is None:
            return super()._convert(request, exchange)
        exchange.calls = forced.grammar
        check_grammar(
            self._config, exchange.route, {"calls": forced.grammar}, exchange.grammar_field
        )
        offered = request.model_copy(update={"tools": forced.tools, "tool_choice": "auto"})
        work = super()._convert(offered, exchange)
        work.sampling_params.pop("structural_tag", None)  # SGLang's, for tools that are strict
        return work

    async def _process_tool_call_stream(
        self, index: int, delta: str, readers: dict[int, Any], content: Any, request: Any, told: Any
    ) -> AsyncIterator[str]:
        if index not in readers:
            readers[index] = self._reader(request)
        async for chunk in super()._process_tool_call_stream(
            index, delta, readers, content, request, told
        ):
            yield chunk

    def _reader(self, request: ChatRequest) -> Any:
        forced = self._forced(request)
        if forced is not None and forced.pieces:
            return CallReader(forced)
        parser = self.tokenizer_manager.server_args.tool_call_parser
        reader = FunctionCallParser(request.tools, parser)
        return FirstCall(reader) if request.parallel_tool_calls is False else reader

    def _chunks(self, work: GenerateReqInput, request: ChatRequest) -> AsyncIterator[str]:
        if not request.logprobs:
            chunks: AsyncIterator[str] = self._generate_chat_stream(work, request, None)
            return chunks
        without = request.model_copy(update={"logprobs": False})
        return with_logprobs(self._generate_chat_stream(work, without, None), work.exchange)

    def _build(self, request: ChatRequest, answers: Sequence[dict[str, Any]]) -> Any:
        forced = self._forced(request)
        exact = forced is not None and bool(forced.pieces)
        bare = request.model_copy(update={"tools": None}) if exact else request
        built = self._build_chat_response(bare, answers, int(time.time()))
        for choice in built.choices:
            if forced is not None and exact:
                _take_calls(choice, forced)
            if request.parallel_tool_calls is False and choice.message.tool_calls:
                del choice.message.tool_calls[1:]
        return built

    def _process_response_logprobs(self, ret_item: dict[str, Any]) -> Any:
        # SGLang merges alternatives whose texts are equal, as those of half characters are.
        return ChoiceLogprobs(content=token_logprobs(ret_item["meta_info"], 0))


class RoutedCompletion(RoutedServing, OpenAIServingCompletion):
    """``/v1/completions``."""

    prompt_field = "prompt"
    id_prefix = "cmpl"
    chunk_object = "text_completion"

    def _open(self, request: Any) -> Exchange:
        if request.echo and request.logprobs is not None:
            raise UnsupportedError(
                "echo: log probabilities of prompts are not kept; leave out one of echo and "
                "logprobs",
                "echo",
            )
        return super()._open(request)

    def _convert(self, request: Any, exchange: Exchange) -> GenerateReqInput:
        if request.echo:
            for ids in _ids(request.prompt):
                self.tokenizer_manager.check_ids(exchange, ids)
            exchange.echo = self._prepare_echo_prompts(request)
            request.echo = False  # the answers begin with it already
        return super()._convert(request, exchange)

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
