"""The official OpenAI client, model names, disconnects and aborts, on the demo pair."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, Literal

import httpx
import openai
import pytest
from pydantic import BaseModel

from tests.integration.deployments import TAU, serve_all
from tests.integration.reference import Model, routed_loop
from tests.integration.server import Server
from tokenrouter.demo.task import problems as draw_problems
from tokenrouter.subserver.sglang_compat.cpu_imports import prepare_sglang_import


@pytest.fixture
def client(demo_server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{demo_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def questions() -> list[str]:
    return [problem.question for problem in islice(draw_problems("held_out", 3), 8)]


def ask(client: openai.OpenAI, model: str, question: str, **options: Any) -> Any:
    return client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": question}], temperature=0, **options
    )


def test_chat(demo_server: Server, client: openai.OpenAI, questions: list[str]) -> None:
    answer = ask(client, "demo", questions[0], extra_body={"routing": {"token_models": True}})
    choice = answer.choices[0]
    routing = answer.model_extra["routing"]
    assert choice.finish_reason == "stop"
    assert choice.message.content.endswith(".")
    assert sum(routing["tokens"].values()) == answer.usage.completion_tokens
    assert routing["algorithm"] == "entropy"
    (writers,) = routing["token_models"]
    assert len(writers) == answer.usage.completion_tokens
    assert routing["tokens"] == {name: writers.count(name) for name in ("small", "large")}
    share = routing["tokens"]["large"] / answer.usage.completion_tokens
    assert answer.model_extra["llm_ratio"] == pytest.approx(share)
    demo_server.assert_clean()


def test_streams_equal_plain_answers(
    demo_server: Server, client: openai.OpenAI, questions: list[str]
) -> None:
    for question in questions[:3]:
        plain = ask(client, "demo", question)
        stream = list(
            ask(client, "demo", question, stream=True, stream_options={"include_usage": True})
        )
        text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
        assert text == plain.choices[0].message.content
        assert len(stream) > 10, "the answer came in one piece"
        assert stream[-1].usage.completion_tokens == plain.usage.completion_tokens
        assert stream[-1].model_extra["routing"] == plain.model_extra["routing"]
    demo_server.assert_clean()


def test_completions_and_samples(demo_server: Server, client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="demo", prompt="Add 1", max_tokens=12, temperature=1.5, n=3,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert all(len(choice.text) > 0 for choice in answer.choices)
    assert answer.usage.completion_tokens == 36
    demo_server.assert_clean()


def test_model_names(demo_server: Server, client: openai.OpenAI, questions: list[str]) -> None:
    names = {model.id for model in client.models.list()}
    assert {"demo", "demo/small", "demo/large"} <= names
    by_name = {
        name: ask(client, name, questions[1], max_tokens=60)
        for name in ("demo/small", "demo/large", "demo@0.0", "demo@100")
    }
    texts = {name: answer.choices[0].message.content for name, answer in by_name.items()}
    assert texts["demo@0.0"] == texts["demo/large"]
    assert texts["demo@100"] == texts["demo/small"]
    assert by_name["demo/large"].model_extra["routing"]["tokens"] == {"large": 60}
    assert by_name["demo@0.0"].model_extra["routing"]["tokens"]["small"] == 0
    demo_server.assert_clean()


def test_errors_name_the_field(demo_server: Server, client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="demo/large"):
        ask(client, "gpt-4", "hello")
    with pytest.raises(openai.BadRequestError, match="context"):
        ask(client, "demo", "hello", max_tokens=1_000_000)
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, "demo", "hello", extra_body={"top_p": 7})
    assert error.value.param == "top_p"
    demo_server.assert_clean()


class Parcel(BaseModel):
    """What a model of word problems can be made to write."""

    item: Literal["pens", "books"]
    fragile: bool


TOOL: Any = {
    "type": "function",
    "function": {"name": "send", "parameters": Parcel.model_json_schema()},
}
NO_SPACE = {str(byte): -100.0 for byte in b" \t\n\r"}
"""A bias: untrained on JSON, the models would fill it with spaces."""
OTHER: Any = {"type": "function", "function": {"name": "keep", "parameters": {"type": "object"}}}


def test_structured_outputs(
    demo_server: Server, client: openai.OpenAI, questions: list[str]
) -> None:
    options: Any = {
        "model": "demo",
        "messages": [{"role": "user", "content": questions[0]}],
        "response_format": Parcel,
        "logit_bias": NO_SPACE,
        "max_tokens": 100,
        "temperature": 0,
    }
    answer = client.chat.completions.parse(**options)
    assert isinstance(answer.choices[0].message.parsed, Parcel)
    assert answer.model_extra is not None
    assert answer.model_extra["routing"]["hand_overs"] > 0
    with client.chat.completions.stream(**options) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == answer.choices[0].message.parsed
    demo_server.assert_clean()


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "send"}}])
@pytest.mark.parametrize("stream", [False, True])
def test_forced_tools(
    demo_server: Server, client: openai.OpenAI, questions: list[str], choice: Any, stream: bool
) -> None:
    tools = [TOOL, OTHER] if isinstance(choice, dict) else [TOOL]
    options: Any = {
        "tools": tools, "tool_choice": choice, "max_tokens": 200, "logit_bias": NO_SPACE,
    }  # fmt: skip
    if stream:
        chunks = list(ask(client, "demo", questions[0], stream=True, **options))
        deltas = [c.choices[0].delta.tool_calls for c in chunks if c.choices]
        calls = [call.function for each in deltas if each for call in each]
        name, text = calls[0].name, "".join(call.arguments or "" for call in calls)
        finish = chunks[-1].choices[0].finish_reason
    else:
        (made,) = ask(client, "demo", questions[0], **options).choices
        (call,) = made.message.tool_calls
        name, text, finish = call.function.name, call.function.arguments, made.finish_reason
    assert (name, finish) == ("send", "tool_calls")
    Parcel.model_validate_json(text)
    demo_server.assert_clean()


def test_the_asynchronous_client(
    demo_server: Server, client: openai.OpenAI, questions: list[str]
) -> None:
    wanted = [ask(client, "demo", q, max_tokens=40).choices[0].message.content for q in questions]

    async def ask_all() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{demo_server.url}/v1", api_key="none") as many:

            async def stream(question: str) -> str:
                answer: Any = await many.chat.completions.create(
                    model="demo", messages=[{"role": "user", "content": question}],
                    temperature=0, max_tokens=40, stream=True,
                )  # fmt: skip
                return "".join([c.choices[0].delta.content or "" async for c in answer])

            return await asyncio.gather(*map(stream, questions))

    assert asyncio.run(ask_all()) == wanted
    demo_server.assert_clean()


def test_sglangs_own_language(demo_server: Server, questions: list[str]) -> None:
    """Programs of SGLang's front-end language run, in one piece and streamed."""
    prepare_sglang_import()
    from sglang.lang import api
    from sglang.lang.backend.runtime_endpoint import RuntimeEndpoint
    from sglang.lang.choices import token_length_normalized

    @api.function
    def solve(s: Any, question: str) -> None:
        s += f"<|user|>{question}<|end|><|assistant|>"
        s += api.gen("steps", max_tokens=300, temperature=0, stop=". ")
        s += ". Checked: " + api.gen("digits", max_tokens=8, temperature=0, regex="[0-9]{3}")

    backend = RuntimeEndpoint(demo_server.url)
    assert backend.get_server_info()["served_name"] == "demo"
    backend.flush_cache()
    whole = solve.run(question=questions[0], backend=backend)
    assert re.fullmatch("[0-9]{3}", whole["digits"])
    assert len(whole["steps"]) > 10
    assert whole.get_meta_info("steps")["routing"]["algorithm"] == "entropy"
    streamed = solve.run(question=questions[0], backend=backend, stream=True)
    assert "".join(streamed.text_iter("steps")) == whole["steps"]
    batch = solve.run_batch([{"question": q} for q in questions[:3]], backend=backend)
    assert batch[0]["steps"] == whole["steps"]
    # Choosing by likelihood needs the probabilities of prompts: it is told so.
    with pytest.raises(RuntimeError, match="log probabilities of prompts are not kept"):
        backend.select(whole.stream_executor, ["yes", "no"], 0.0, token_length_normalized)
    demo_server.assert_clean()


def test_disconnects_and_aborts_at_any_moment(
    demo_server: Server, demo_models: list[Model], problems: list[list[int]]
) -> None:
    rng = random.Random(5)
    patience = [rng.uniform(0.0, 0.6) for _ in range(48)]

    def give_up(number: int) -> None:
        body = {
            "input_ids": problems[number % len(problems)],
            "sampling_params": {"max_new_tokens": 800, "temperature": 0, "ignore_eos": True},
            "stream": bool(number % 2),
        }
        deadline = time.monotonic() + patience[number]
        try:
            with httpx.stream(
                "POST", f"{demo_server.url}/generate", json=body, timeout=patience[number] + 0.01
            ) as answer:
                for _ in answer.iter_lines():
                    if time.monotonic() > deadline:
                        return
        except httpx.TimeoutException:
            return

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(give_up, range(len(patience))))
    demo_server.assert_clean()
    (answer,) = serve_all(demo_server, problems[:1], 40)
    assert answer["output_ids"] == routed_loop(demo_models, problems[0], 40, "entropy", TAU).tokens
    demo_server.assert_clean()


def test_a_lone_request_a_burst_and_a_drain(demo_server: Server, problems: list[list[int]]) -> None:
    (alone,) = serve_all(demo_server, problems[:1], 30)
    burst = serve_all(demo_server, problems, 30)
    assert burst[0]["output_ids"] == alone["output_ids"]
    answers = [serve_all(demo_server, problems[: 24 - 5 * i], 20 + i) for i in range(5)]
    assert [len(each) for each in answers] == [24, 19, 14, 9, 4]
    demo_server.assert_clean()
