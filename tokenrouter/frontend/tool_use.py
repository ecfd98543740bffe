"""Whether the tools of a chat can be offered, and which field constrains the output."""

from __future__ import annotations

import re
from typing import Any

from tokenrouter.errors import RequestError, UnsupportedError
from tokenrouter.frontend.protocol import ChatRequest
from tokenrouter.frontend.quoting import quoted

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Of a function; it is written into grammars."""


def check_tools(request: ChatRequest, parser: str | None, constrained: str | None) -> str | None:
    """The field that makes the output follow a grammar, if any.

    Args:
        parser: the deployment's ``tool_call_parser``.
        constrained: the field that already does.

    Raises:
        RequestError: naming the field that cannot be followed.
    """
    choice = request.tool_choice
    if choice == "none":
        return constrained
    forced = choice != "auto"
    if not request.tools:
        if forced:
            raise RequestError("tool_choice: there are no tools to choose from", "tool_choice")
        return constrained
    if parser is None:
        raise UnsupportedError(
            "tools: the deployment does not know how its models write tool calls; start it with "
            "tool_call_parser of its first model, or give tool_choice: none",
            "tools",
        )
    names = [_name(tool, f"tools[{i}]") for i, tool in enumerate(request.tools)]
    if not isinstance(choice, str) and choice.function.name not in names:
        raise RequestError(
            f"tool_choice.function.name: {quoted(choice.function.name)} is not among the tools, "
            f"{', '.join(map(repr, names))}",
            "tool_choice.function.name",
        )
    if forced and constrained is not None:
        raise RequestError(
            f"tool_choice: {constrained} is given too, and the output cannot be a tool call and "
            "follow it; give one of them",
            "tool_choice",
        )
    if constrained is not None:
        return constrained
    return "tool_choice" if forced else "tools"


def _name(tool: Any, field: str) -> str:
    if tool.type != "function":
        raise UnsupportedError(f"{field}.type: only 'function' is served", f"{field}.type")
    name = tool.function.name
    if name is None or not NAME.fullmatch(name):
        raise RequestError(
            f"{field}.function.name: 1 to 64 letters, digits, '_', '-' and '.'; got {quoted(name)}",
            f"{field}.function.name",
        )
    parameters = tool.function.parameters
    if parameters is not None and not isinstance(parameters, dict):
        raise RequestError(
            f"{field}.function.parameters: a JSON schema is an object",
            f"{field}.function.parameters",
        )
    return str(name)
