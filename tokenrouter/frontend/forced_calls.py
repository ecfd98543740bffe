"""The grammar of a tool call that must be written: made of the tools' own JSON schemas.

From `openai_endpoints.py`; `grammar_process.py` compiles it, `call_reader.py` reads what follows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tokenrouter.errors import RequestError, UnsupportedError
from tokenrouter.frontend.protocol import ChatRequest
from tokenrouter.frontend.quoting import quoted
from tokenrouter.subserver.sglang_compat.serving import FunctionCallParser, Tool

NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True)
class Piece:
    """A call of ``name``: ``begin``, JSON that ``schema`` allows, ``end``."""

    name: str
    begin: str
    schema: dict[str, Any]
    end: str
    field: str
    """Where the request gives the schema."""


@dataclass(frozen=True)
class ForcedCalls:
    """What must be written.

    ``tools``: those that may be called. ``grammar``: text of a grammar of the kind ``calls``.
    ``pieces``: none where SGLang's own grammar serves. ``separator``: between calls; None: there
    is one call.
    """

    tools: Sequence[Tool]
    grammar: str
    pieces: Sequence[Piece] = ()
    separator: str | None = None


def forced_calls(request: ChatRequest, parser: str | None) -> ForcedCalls | None:
    """What ``tool_choice`` forces, or None.

    Args:
        request: as `check_tools` has passed it.
        parser: the deployment's ``tool_call_parser``.

    Raises:
        RequestError: the parameters of a tool are no JSON schema of an object.
        UnsupportedError: calls cannot be forced in this format.
    """
    choice = request.tool_choice
    if parser is None or not request.tools or choice in ("auto", "none"):
        return None
    named = None if isinstance(choice, str) else choice.function.name
    allowed = {
        f"tools[{i}].function.parameters": tool
        for i, tool in enumerate(request.tools)
        if named is None or tool.function.name == named
    }
    schemas = {field: _schema(tool, field) for field, tool in allowed.items()}
    tools = list(allowed.values())
    if not _exact(parser):
        return ForcedCalls(tools, _approximate(allowed, parser))
    structure = FunctionCallParser(tools, parser).detector.structure_info()
    infos = {field: structure(tool.function.name) for field, tool in allowed.items()}
    pieces = [
        Piece(allowed[field].function.name, info.begin, schemas[field], info.end, field)
        for field, info in infos.items()
    ]
    several = named is None and request.parallel_tool_calls is not False
    separator = _separator(parser) if several else None
    calls = [
        {"begin": each.begin, "schema": each.schema, "end": each.end, "field": each.field}
        for each in pieces
    ]
    grammar = json.dumps({"calls": calls, "separator": separator})
    return ForcedCalls(tools, grammar, pieces, separator)


def _schema(tool: Tool, field: str) -> dict[str, Any]:
    parameters: dict[str, Any] = tool.function.parameters or NO_PARAMETERS
    if (kind := parameters.get("type", "object")) != "object":
        raise RequestError(
            f"{field}: a function takes an object; give type 'object', not {quoted(kind)}", field
        )
    try:
        json.dumps(parameters)
    except RecursionError as error:
        raise RequestError(f"{field}: nested too deeply", field) from error
    return {"type": "object", **parameters} if "properties" in parameters else parameters


def _approximate(allowed: dict[str, Tool], parser: str) -> str:
    """SGLang's grammar; and of each tool alone, to tell which is wrong."""
    detector = FunctionCallParser(list(allowed.values()), parser).detector
    alone = []
    for field, tool in allowed.items():
        try:
            alone.append({"field": field, "ebnf": detector.build_ebnf([tool])})
        except NotImplementedError as error:
            raise UnsupportedError(
                f"tool_choice: a call cannot be forced in the format of {parser!r}; let it be auto",
                "tool_choice",
            ) from error
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise RequestError(f"{field}: not a schema of parameters: {error!r}", field) from error
    whole = detector.build_ebnf(list(allowed.values()))
    return json.dumps({"ebnf": whole, "alone": alone})


@lru_cache
def _exact(parser: str) -> bool:
    """Whether SGLang's beginning and end of a call make a whole call, which its parser reads."""
    return _read(parser, "") == ["f"]


@lru_cache
def _separator(parser: str) -> str | None:
    """What may stand between calls; None: the format of whole calls allows one only."""
    probe = FunctionCallParser([], parser).detector
    separator: str = probe.tool_call_separator
    return separator if _read(parser, separator, "f", "f") == ["f", "f"] else None


def _read(parser: str, separator: str, *names: str) -> list[str]:
    """The calls that SGLang's parser reads in such a text."""
    tools = [Tool(function={"name": "f"})]
    reader = FunctionCallParser(tools, parser)
    try:
        info = reader.detector.structure_info()("f")
    except NotImplementedError:
        return []
    call = info.begin + '{"x": 1}' + info.end
    _, calls = reader.parse_non_stream(separator.join(call for _ in names or ("f",)))
    places = [call.tool_index for call in calls if call.tool_index >= 0]
    return [call.name for call in calls] if len(set(places)) == len(places) else []
