"""Forced tool calls follow the schemas of their tools, whichever models write them in turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from tests.integration.server import Server


def takes(schema: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"a": schema},
        "required": ["a"],
        "additionalProperties": False,
    }


def is_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 3 and all(type(v) is bool for v in value)


CASES: dict[str, tuple[Any, Any]] = {
    "list": ({"type": "array", "items": {"type": "boolean"}, "maxItems": 3}, is_list),
    "either": (
        {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        lambda value: value is None or type(value) is bool,
    ),
    "number": ({"type": "integer", "enum": [1, 2]}, lambda v: type(v) is int and v in (1, 2)),
    "nested": (takes({"enum": ["x", 7]}), lambda v: set(v) == {"a"} and v["a"] in ("x", 7)),
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": takes(schema)}}
    for name, (schema, _) in CASES.items()
]
TOOLS.append({"type": "function", "function": {"name": "nothing"}})


@pytest.fixture
def client(demo_server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{demo_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, seed: int, stream: bool, **fields: Any) -> tuple[list[Any], str]:
    """Names and arguments of the calls, and how the answer ended."""
    answer: Any = client.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": "2+2?"}], stream=stream, seed=seed,
        temperature=1.0, max_tokens=300, tools=TOOLS, **fields,
    )  # fmt: skip
    if not stream:
        (choice,) = answer.choices
        assert choice.message.content is None
        calls = [call.function for call in choice.message.tool_calls]
        return [(call.name, call.arguments) for call in calls], choice.finish_reason
    chunks = [chunk.choices[0] for chunk in answer if chunk.choices]
    assert not any(chunk.delta.content for chunk in chunks)
    parts = [part for chunk in chunks for part in chunk.delta.tool_calls or ()]
    names = [part.function.name for part in parts if part.function.name]
    texts = ["" for _ in names]
    for part in parts:
        texts[part.index] += part.function.arguments or ""
    return list(zip(names, texts, strict=True)), chunks[-1].finish_reason


def check(name: str, arguments: str) -> None:
    value = json.loads(arguments)
    if name == "nothing":
        assert value == {}
    else:
        assert set(value) == {"a"} and CASES[name][1](value["a"]), arguments


@pytest.mark.parametrize("stream", [False, True])
def test_named(demo_server: Server, client: openai.OpenAI, stream: bool) -> None:
    def force(job: tuple[str, int]) -> None:
        name, seed = job
        choice = {"type": "function", "function": {"name": name}}
        ((written, arguments),), finish = ask(client, seed, stream, tool_choice=choice)
        assert (written, finish) == (name, "tool_calls")
        check(name, arguments)

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(force, [(name, seed) for name in (*CASES, "nothing") for seed in range(2)]))
    demo_server.assert_clean()


@pytest.mark.parametrize("parallel", [None, False])
def test_required(demo_server: Server, client: openai.OpenAI, parallel: bool | None) -> None:
    fields = {} if parallel is None else {"parallel_tool_calls": parallel}
    answers = []
    for stream in (False, True):
        with ThreadPoolExecutor(6) as pool:
            jobs = [
                pool.submit(ask, client, seed, stream, tool_choice="required", **fields)
                for seed in range(6)
            ]
        answers.append([job.result() for job in jobs])
    assert answers[0] == answers[1], "a stream has the same calls"
    for calls, finish in answers[0]:
        whole = calls if finish == "tool_calls" else calls[:-1]
        for call in whole:
            check(*call)
        assert finish == "tool_calls" or parallel is None
        assert len(calls) == 1 or (calls and parallel is None)
    demo_server.assert_clean()


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_no_schema_names_the_tool(
    demo_server: Server, client: openai.OpenAI, stream: bool
) -> None:
    wrong = {"type": "function", "function": {"name": "odd", "parameters": takes({"type": "text"})}}
    with pytest.raises(openai.BadRequestError, match="text") as caught:
        client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": "2+2?"}], stream=stream,
            tools=[TOOLS[0], wrong], tool_choice="required",
        )  # type: ignore[call-overload]  # fmt: skip
    assert caught.value.param == "tools[1].function.parameters"
    demo_server.assert_clean()
