"""Taking written text apart: tool calls and reasoning. No model is asked."""

from __future__ import annotations

import orjson
from fastapi import Response
from pydantic import ValidationError

from tokenrouter.errors import RequestError
from tokenrouter.frontend.http_errors import describe
from tokenrouter.frontend.operator_protocol import ParseBody, SeparateBody
from tokenrouter.frontend.quoting import quoted
from tokenrouter.frontend.tokenizer_manager import RoutedTokenizerManager
from tokenrouter.subserver.sglang_compat.serving import FunctionCallParser, ReasoningParser, Tool


class TextTools:
    """The endpoints. Without a parser in the body, the deployment's is used."""

    def __init__(self, manager: RoutedTokenizerManager) -> None:
        self._args = manager.server_args

    async def parse_function_call(self, body: ParseBody) -> Response:
        """Tool calls in a text, and the rest of it."""
        name = _one_of(
            body.tool_call_parser or self._args.tool_call_parser,
            list(FunctionCallParser.ToolCallParserEnum),
            "tool_call_parser",
        )
        text, calls = FunctionCallParser(_tools(body), name).parse_non_stream(body.text)
        content = {"normal_text": text, "calls": [call.model_dump() for call in calls]}
        return Response(orjson.dumps(content), media_type="application/json")

    async def separate_reasoning(self, body: SeparateBody) -> Response:
        """The reasoning at the beginning of a text, and the rest of it."""
        name = _one_of(
            body.reasoning_parser or self._args.reasoning_parser,
            list(ReasoningParser.DetectorMap),
            "reasoning_parser",
        )
        reasoning, text = ReasoningParser(name).parse_non_stream(body.text)
        content = {"reasoning_text": reasoning, "text": text}
        return Response(orjson.dumps(content), media_type="application/json")


def _one_of(name: str | None, known: list[str], field: str) -> str:
    if name not in known:
        raise RequestError(f"{field}: choose one of {', '.join(known)}; got {quoted(name)}", field)
    return name


def _tools(body: ParseBody) -> list[Tool]:
    tools = []
    for i, each in enumerate(body.tools):
        try:
            tools.append(Tool.model_validate(each))
        except ValidationError as error:
            message, field = describe([{**e, "loc": ("", *e["loc"])} for e in error.errors()])
            raise RequestError(f"tools[{i}].{message}", f"tools[{i}].{field}") from error
    return tools
