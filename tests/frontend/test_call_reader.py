"""Forced calls are read as they are written, in whatever pieces they come."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenrouter.errors import RequestError, UnsupportedError
from tokenrouter.frontend.call_reader import CallReader, FirstCall, read_calls
from tokenrouter.frontend.forced_calls import ForcedCalls, forced_calls
from tokenrouter.frontend.protocol import ChatRequest
from tokenrouter.subserver.sglang_compat.serving import FunctionCallParser

ARGUMENTS = ['{"a": "}\\n</tool_call>\\"{", "b": [1e400, {"c": {}}]}', "{}", '{"é": "\\\\"}']


def forced(parser: str = "qwen25", **fields: Any) -> ForcedCalls:
    tools = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
    body = {"messages": [{"role": "user", "content": "x"}], "tools": tools}
    result = forced_calls(ChatRequest(**{**body, "tool_choice": "required", **fields}), parser)
    assert result is not None
    return result


def written(calls: ForcedCalls, arguments: list[str]) -> str:
    texts = []
    for i, each in enumerate(arguments):
        piece = calls.pieces[i % 2]
        texts.append(piece.begin + each + piece.end)
    return (calls.separator or "").join(texts)


@given(cuts=st.lists(st.integers(1, 200), max_size=12), count=st.integers(1, 3))
def test_any_pieces(cuts: list[int], count: int) -> None:
    calls = forced()
    text = written(calls, ARGUMENTS[:count])
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    reader, parts = CallReader(calls), []
    for start, end in pairwise(edges):
        stray, news = reader.parse_stream_chunk(text[start:end])
        assert not stray
        parts += news
    assert [p.name for p in parts if p.name] == ["f", "g", "f"][:count]
    for i in range(count):
        assert "".join(p.parameters for p in parts if p.tool_index == i) == ARGUMENTS[i]


@pytest.mark.parametrize("parser", ["qwen25", "llama3", "mistral", "kimi_k2"])
def test_formats_with_whole_calls(parser: str) -> None:
    calls = forced(parser)
    several = parser in ("qwen25", "llama3")
    assert (calls.separator is not None) == several
    arguments = ['{"a": 1}', '{"b": 2}'][: 1 + several]
    text = written(calls, arguments)
    rest, read = read_calls(calls, text)
    assert (rest, [each.function.arguments for each in read]) == ("", arguments)
    _, known = FunctionCallParser(list(calls.tools), parser).parse_non_stream(text)
    assert [(k.name, json.loads(k.parameters)) for k in known] == [
        (each.function.name, json.loads(each.function.arguments)) for each in read
    ]


@pytest.mark.parametrize("parser", ["deepseekv3", "pythonic", "qwen3_coder", "glm45", "step3"])
def test_other_formats_keep_sglangs_grammar(parser: str) -> None:
    calls = forced(parser)
    assert not calls.pieces
    assert set(json.loads(calls.grammar)) == {"ebnf", "alone"}


def test_what_cannot_be_forced() -> None:
    with pytest.raises(UnsupportedError, match=r"^tool_choice: .*'gpt-oss'"):
        forced("gpt-oss")
    deep: Any = {}
    for _ in range(100_000):
        deep = {"properties": deep}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    request = ChatRequest(
        messages=[{"role": "user", "content": "x"}], tools=tools, tool_choice="required"
    )
    request.tools[0].function.parameters = deep
    with pytest.raises(RequestError, match=r"^tools\[0\].function.parameters: .*deep"):
        forced_calls(request, "qwen25")


@pytest.mark.parametrize("parser", ["pythonic", "qwen3_coder"])
def test_odd_parameters_name_the_tool(parser: str) -> None:
    odd = {"name": "g", "parameters": {"properties": ["a"]}}
    tools = [{"type": "function", "function": each} for each in ({"name": "f"}, odd)]
    with pytest.raises(RequestError, match=r"^tools\[1\].function.parameters: "):
        forced(parser, tools=tools)


def test_named_or_not_parallel_is_one_call() -> None:
    assert forced().separator == "\n"
    assert forced(parallel_tool_calls=False).separator is None
    named = forced(tool_choice={"type": "function", "function": {"name": "g"}})
    assert named.separator is None
    assert [(each.name, each.field) for each in named.pieces] == [
        ("g", "tools[1].function.parameters")
    ]


def test_a_call_that_is_cut_and_text_that_is_none() -> None:
    calls = forced()
    text = written(calls, ARGUMENTS)
    rest, (only,) = read_calls(calls, text[:60])
    assert not rest and ARGUMENTS[0].startswith(only.function.arguments)
    assert read_calls(calls, text[:9]) == ("", [])
    assert read_calls(calls, "No.") == ("No.", [])
    one = forced(parallel_tool_calls=False)
    assert len(read_calls(one, written(calls, ARGUMENTS))[1]) == 1


def test_the_first_of_an_automatic_answer() -> None:
    calls = forced()
    reader = FirstCall(FunctionCallParser(list(calls.tools), "mistral"))
    text = (
        '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {"b": 2}}]'
    )
    told = [call for piece in text for call in reader.parse_stream_chunk(piece)[1]]
    assert {call.tool_index for call in told} == {0}
    assert "".join(call.parameters for call in told) == '{"a": 1}'
    assert reader.detector is None
