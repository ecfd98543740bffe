"""Reads forced tool calls, whole or as they are written: their arguments are the model's own text.

Made by `openai_endpoints.py`. SGLang's parsers write arguments again from what they have understood
so far, and in a stream lose calls after the first.
"""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

from tokenrouter.frontend.forced_calls import ForcedCalls, Piece
from tokenrouter.subserver.sglang_compat.serving import FunctionResponse, ToolCall


class CallPart(NamedTuple):
    """News of call number ``tool_index``: its name, once; and more of its arguments."""

    tool_index: int
    name: str | None
    parameters: str


class CallReader:
    """Of one choice; stands in for SGLang's parser in its streams."""

    detector = None
    """SGLang looks here for what its own parsers may have kept back."""

    def __init__(self, forced: ForcedCalls) -> None:
        self._forced = forced
        self._buffer = ""
        self._piece: Piece | None = None
        self._index = -1
        self._depth, self._in_string, self._escaped = 0, False, False

    def parse_stream_chunk(self, chunk: str) -> tuple[str, list[CallPart]]:
        """Text that belongs to no call, and the news in ``chunk``."""
        self._buffer += chunk
        parts: list[CallPart] = []
        while self._buffer and (self._arguments(parts) if self._piece else self._begin(parts)):
            pass
        return self._stray(), parts

    def _openings(self) -> list[tuple[str, Piece]]:
        if self._index >= 0 and self._forced.separator is None:
            return []
        before = self._forced.separator or "" if self._index >= 0 else ""
        return [(before + piece.begin, piece) for piece in self._forced.pieces]

    def _begin(self, parts: list[CallPart]) -> bool:
        for opening, piece in self._openings():
            if self._buffer.startswith(opening):
                self._buffer = self._buffer[len(opening) :]
                self._piece, self._index = piece, self._index + 1
                parts.append(CallPart(self._index, piece.name, ""))
                return True
        return False

    def _stray(self) -> str:
        """What can be no part of a call, such as an answer that was cut before its grammar."""
        if self._piece or any(each.startswith(self._buffer) for each, _ in self._openings()):
            return ""
        text, self._buffer = self._buffer, ""
        return text

    def _arguments(self, parts: list[CallPart]) -> bool:
        """Take arguments from the buffer; whether their end is among it."""
        end = self._piece.end if self._piece else ""
        length = self._scan(end)
        if length:
            parts.append(CallPart(self._index, None, self._buffer[:length]))
        self._buffer = self._buffer[length:]
        if not self._buffer.startswith(end):
            return False
        self._buffer = self._buffer[len(end) :]
        self._piece = None
        return True

    def _scan(self, end: str) -> int:
        """Characters of the buffer before what is ``end``, or may become it."""
        for i, character in enumerate(self._buffer):
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif character == "\\":
                    self._escaped = True
                elif character == '"':
                    self._in_string = False
            elif self._depth == 0 and end.startswith(self._buffer[i : i + len(end)]):
                return i
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
        return len(self._buffer)


class FirstCall:
    """One of SGLang's parsers, of whose calls the first alone is told."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser

    @property
    def detector(self) -> Any:
        """What may have kept back arguments of the first call."""
        detector = self._parser.detector
        return detector if len(getattr(detector, "prev_tool_call_arr", ())) <= 1 else None

    def parse_stream_chunk(self, chunk: str) -> tuple[str, list[Any]]:
        """Text that belongs to no call, and the news of the first."""
        text, calls = self._parser.parse_stream_chunk(chunk)
        return text, [call for call in calls if call.tool_index <= 0]


def read_calls(forced: ForcedCalls, text: str) -> tuple[str, list[ToolCall]]:
    """What ``text`` has besides calls, and the calls."""
    rest, parts = CallReader(forced).parse_stream_chunk(text)
    calls: list[ToolCall] = []
    for part in parts:
        if part.name is not None:
            function = FunctionResponse(name=part.name, arguments="")
            calls.append(ToolCall(id=f"call_{uuid.uuid4().hex[:24]}", function=function))
        calls[part.tool_index].function.arguments += part.parameters
    return rest, calls
