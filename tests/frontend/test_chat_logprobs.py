"""Log probabilities in OpenAI's shapes, in one piece and streamed."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.frontend.fakes import END_ID, TOKENIZER, reply

MESSAGES: Any = [{"role": "user", "content": "hello"}]
PROMPT = TOKENIZER.apply_chat_template(MESSAGES, add_generation_prompt=True)
TOKENS = reply(PROMPT, 0)


def chat_entries(top: int) -> list[tuple[str, float, list[tuple[str, float]]]]:
    """What the fake members say of every token of the answer."""
    entries = []
    for i, token in enumerate(TOKENS):
        value = -0.25 * (i + 1)
        alternatives = [(TOKENIZER.decode([token + k]), value - k) for k in range(top)]
        entries.append((TOKENIZER.decode([token]), value, alternatives))
    return entries


def plain(content: Any) -> list[tuple[str, float, list[tuple[str, float]]]]:
    for each in content:
        assert each.bytes == list(each.token.encode())
    return [
        (each.token, each.logprob, [(top.token, top.logprob) for top in each.top_logprobs])
        for each in content
    ]


@pytest.mark.parametrize("top", [0, 2, 20])
@pytest.mark.parametrize("stream", [False, True])
def test_chat(client: openai.OpenAI, stream: bool, top: int) -> None:
    answer: Any = client.chat.completions.create(
        model="demo", messages=MESSAGES, logprobs=True, top_logprobs=top, stream=stream
    )
    if stream:
        choices = [chunk.choices[0] for chunk in answer if chunk.choices]
        content = [entry for c in choices if c.logprobs for entry in c.logprobs.content]
        assert len([c for c in choices if c.logprobs]) > 5
    else:
        content = answer.choices[0].logprobs.content
    assert plain(content) == chat_entries(top)


def test_chat_of_several_samples(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="demo", messages=MESSAGES, logprobs=True, n=2, stream=True
    )
    tokens: dict[int, str] = {0: "", 1: ""}
    for chunk in stream:
        for choice in chunk.choices:
            for entry in choice.logprobs.content or () if choice.logprobs else ():
                tokens[choice.index] += entry.token
    for sample in range(2):
        wanted = [TOKENIZER.decode([token]) for token in reply(PROMPT, sample)]
        assert tokens[sample] == "".join(wanted)


def test_no_logprobs_unless_asked(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="demo", messages=MESSAGES)
    assert answer.choices[0].logprobs is None
    for chunk in client.chat.completions.create(model="demo", messages=MESSAGES, stream=True):
        assert chunk.choices[0].logprobs is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("top", [0, 2])
def test_completions(client: openai.OpenAI, stream: bool, top: int) -> None:
    answer: Any = client.completions.create(
        model="demo", prompt="hello", max_tokens=99, logprobs=top, stream=stream
    )
    choices = [c.choices[0] for c in answer] if stream else [answer.choices[0]]
    values, texts, alternatives = [], [], []
    for choice in choices:
        values += choice.logprobs.token_logprobs
        texts += choice.logprobs.tokens
        alternatives += choice.logprobs.top_logprobs
    tokens = reply(TOKENIZER.encode("hello"), 0)
    assert tokens[-1] == END_ID
    assert texts == [TOKENIZER.decode([token]) for token in tokens]
    assert values == [-0.25 * (i + 1) for i in range(len(tokens))]
    assert len(alternatives) == (len(tokens) if top else 0)
