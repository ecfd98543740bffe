"""What OpenAI's endpoints share: SGLang's handlers, with routes, reporting how they routed.

The handlers apply chat templates, and build answers and stream chunks; errors they meet
are raised to the app. The first output is awaited before the response starts, so that a
refused request gets its HTTP status also when it asked for a stream.
"""

from __future__ import annotations

import copy
import time
import uuid
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar, NoReturn

import orjson
from fastapi import Request, Response
from jinja2 import TemplateError

from tokenrouter.config import Config
from tokenrouter.errors import RequestError, RoutingError
from tokenrouter.frontend import names
from tokenrouter.frontend.clients import DONE, EventStream, while_connected
from tokenrouter.frontend.constraints import check_grammar, grammar_field
from tokenrouter.frontend.exchange import Exchange
from tokenrouter.frontend.protocol import OpenAIRequest
from tokenrouter.frontend.report import merge
from tokenrouter.frontend.supported import check_fields
from tokenrouter.frontend.tokenizer_manager import NO_UNICODE, RoutedTokenizerManager
from tokenrouter.subserver.sglang_compat.serving import GenerateReqInput, TemplateManager

CANNOT_WRITE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    NotImplementedError,
    RecursionError,
    TemplateError,
)
"""What templates and parsers raise about messages and tools that they do not understand."""


class RoutedServing:
    """Mixed into one of SGLang's handlers by each class of `openai_endpoints`."""

    prompt_field: ClassVar[str]
    id_prefix: ClassVar[str]
    chunk_object: ClassVar[str]

    tokenizer_manager: RoutedTokenizerManager

    def __init__(
        self, manager: RoutedTokenizerManager, templates: TemplateManager, config: Config
    ) -> None:
        super().__init__(manager, templates)  # type: ignore[call-arg]
        self._config = config

    async def respond(self, request: Any, client: Request) -> Response:
        """The HTTP response to ``request``.

        Raises:
            TokenRouterError: it is refused, or failed before its first token.
        """
        exchange = self._open(request)
        self.tokenizer_manager.begin(exchange)
        try:
            work = self._convert(request, exchange)
            if request.stream:
                events = self._events(work, request, exchange)
                first = await while_connected(client, anext(events))
                return EventStream(first, events, lambda: self.tokenizer_manager.finish(exchange))
            answers = self.tokenizer_manager.generate_request(work)
            answer = await while_connected(client, anext(answers))
        except BaseException:
            self.tokenizer_manager.finish(exchange)
            raise
        self.tokenizer_manager.finish(exchange)
        built = self._build(request, answer if isinstance(answer, list) else [answer])
        content = {**built.model_dump(), **self._report(exchange)}
        return Response(orjson.dumps(content), media_type="application/json")

    def create_error_response(self, message: str, *args: Any, **kwargs: Any) -> NoReturn:
        """SGLang's handlers answer errors here: raise them instead."""
        raise RoutingError(message)

    def create_streaming_error_response(self, message: str, *args: Any, **kwargs: Any) -> NoReturn:
        """Called by SGLang's streams from their except blocks: let the error through."""
        raise

    @abstractmethod
    def _chunks(self, work: GenerateReqInput, request: Any) -> AsyncIterator[str]:
        """SGLang's stream of server-sent events."""

    @abstractmethod
    def _build(self, request: Any, answers: Sequence[dict[str, Any]]) -> Any:
        """SGLang's response model."""

    def _open(self, request: OpenAIRequest) -> Exchange:
        check_fields(request)
        constrained = self._grammar_field(request)
        if message := self._validate_request(request):  # type: ignore[attr-defined]
            raise RequestError(f"{self.prompt_field}: {message}", self.prompt_field)
        options = names.seeded(request.routing, request.seed)
        route = names.resolve(request.model, options, self._config)
        if request.model == names.DEFAULT:
            request.model = self._config.served_name
        chosen = getattr(request, "max_completion_tokens", None)
        length_field = "max_tokens" if chosen is None else "max_completion_tokens"
        client_id = request.rid or f"{self.id_prefix}-{uuid.uuid4().hex}"
        choices = self._prompts(request) * request.n
        return Exchange(
            route,
            self.prompt_field,
            length_field,
            client_id,
            request.seed,
            choices,
            grammar_field=constrained,
            algorithm_field=names.algorithm_field(request.routing),
        )

    def _grammar_field(self, request: Any) -> str | None:
        """The field that makes the output follow a grammar, if any."""
        return grammar_field(request)

    def _prompts(self, request: Any) -> int:
        """How many prompts the request has."""
        return 1

    def _convert(self, request: OpenAIRequest, exchange: Exchange) -> GenerateReqInput:
        bare = copy.copy(request)
        bare.rid = None  # the client's id is put into the answer, and used nowhere else
        try:
            work, _ = self._convert_to_internal_request(bare)  # type: ignore[attr-defined]
        except CANNOT_WRITE as error:
            # The tokenizer, its template or the parser of tools cannot write this prompt.
            raise RequestError(
                f"{self.prompt_field}: {_why_not_written(error)}", self.prompt_field
            ) from error
        check_grammar(self._config, exchange.route, work.sampling_params, exchange.grammar_field)
        work.exchange = exchange
        return work

    async def _events(
        self, work: GenerateReqInput, request: Any, exchange: Exchange
    ) -> AsyncIterator[bytes]:
        """SGLang's events; the last before the end also carries the routing report."""
        usage = request.stream_options is not None and request.stream_options.include_usage
        async for chunk in self._chunks(work, request):
            event = chunk.encode()
            if event == DONE and not usage and request.routing is not None:
                yield self._report_event(request, exchange)
            elif usage and b'"choices":[]' in event:
                content = orjson.loads(event.removeprefix(b"data: "))
                event = _event({**content, **self._report(exchange)})
            yield event

    def _report_event(self, request: OpenAIRequest, exchange: Exchange) -> bytes:
        content = {
            "id": exchange.client_id,
            "object": self.chunk_object,
            "created": int(time.time()),
            "model": request.model,
            "choices": [],
        }
        return _event({**content, **self._report(exchange)})

    def _report(self, exchange: Exchange) -> dict[str, Any]:
        reports = [exchange.reports[index] for index in sorted(exchange.reports)]
        return merge(reports, self._config.names[0])


def _why_not_written(error: Exception) -> str:
    if isinstance(error, UnicodeError) or "TextEncodeInput" in str(error):
        return NO_UNICODE
    if isinstance(error, TemplateError):
        return f"the model's chat template does not take them: {error}"
    return repr(error)


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(content) + b"\n\n"
