"""Text completions through the official client."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.frontend.fakes import TOKENIZER, Deployment, reply, reply_text

PROMPT = TOKENIZER.encode("hello")


def test_an_answer(server: Deployment, client: openai.OpenAI) -> None:
    answer: Any = client.completions.create(model="demo", prompt="hello", max_tokens=99)
    assert answer.choices[0].text == reply_text(PROMPT)
    assert (answer.choices[0].finish_reason, answer.object) == ("stop", "text_completion")
    assert answer.id.startswith("cmpl-")
    assert answer.routing["tokens"]["small"] > 0
    assert server.members.submitted[0].submit.prompt == PROMPT


def test_the_default_length_is_openais(server: Deployment, client: openai.OpenAI) -> None:
    answer = client.completions.create(model="demo", prompt="hello")
    assert (answer.choices[0].finish_reason, server.members.submitted[0].sampling) == (
        "length",
        server.members.submitted[0].sampling,
    )
    assert server.members.submitted[0].sampling.max_new_tokens == 16


def test_token_ids_as_prompt(server: Deployment, client: openai.OpenAI) -> None:
    answer = client.completions.create(model="demo", prompt=[1, 2, 65], max_tokens=99)
    assert server.members.submitted[0].submit.prompt == [1, 2, 65]
    assert answer.choices[0].text == reply_text([1, 2, 65])


def test_several_prompts_and_samples(server: Deployment, client: openai.OpenAI) -> None:
    answer: Any = client.completions.create(
        model="demo", prompt=["one", "three"], n=2, max_tokens=99
    )
    prompts = [TOKENIZER.encode(text) for text in ("one", "three")]
    wanted = [reply_text(prompt, sample) for prompt in prompts for sample in range(2)]
    assert [choice.text for choice in answer.choices] == wanted
    assert answer.usage.prompt_tokens == sum(map(len, prompts))
    assert answer.usage.completion_tokens == sum(
        len(reply(prompt, sample)) for prompt in prompts for sample in range(2)
    )
    routes = [sent.route for sent in server.members.submitted]
    assert [route.members for route in routes] == [(0,)] * 2 + [(0, 1)] * 4
    assert [route.sample for route in routes[2:]] == [0, 1, 0, 1]


def test_a_stream(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model="demo",
        prompt="hello",
        max_tokens=99,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks: list[Any] = list(stream)
    text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    assert text == reply_text(PROMPT)
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens == len(reply(PROMPT, 0))
    assert chunks[-1].routing["algorithm"] == "entropy"


def test_a_stream_reports_routing_on_request(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model="demo", prompt="hello", max_tokens=99, stream=True, extra_body={"routing": {}}
    )
    chunks: list[Any] = list(stream)
    assert (chunks[-1].choices, chunks[-1].object) == ([], "text_completion")
    assert chunks[-1].routing["algorithm"] == "entropy"


@pytest.mark.parametrize("stream", [False, True])
def test_echo(client: openai.OpenAI, stream: bool) -> None:
    answer: Any = client.completions.create(
        model="demo", prompt=["one", "three"], n=2, max_tokens=99, echo=True, stream=stream
    )
    texts = dict.fromkeys(range(4), "")
    for each in answer if stream else [answer]:
        for choice in each.choices:
            texts[choice.index] += choice.text
    wanted = [
        text + reply_text(TOKENIZER.encode(text), sample)
        for text in ("one", "three")
        for sample in range(2)
    ]
    assert list(texts.values()) == wanted


def test_echo_of_ids(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="demo", prompt=PROMPT, max_tokens=99, echo=True)
    assert answer.choices[0].text == "hello" + reply_text(PROMPT)
