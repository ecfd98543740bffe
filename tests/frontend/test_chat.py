"""Chat completions through the official client."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.frontend.fakes import TOKENIZER, Deployment, reply, reply_text

MESSAGES: Any = [{"role": "user", "content": "hello"}]
PROMPT = TOKENIZER.apply_chat_template(MESSAGES, add_generation_prompt=True)
LENGTH = len(reply(PROMPT, 0))


def routed(tokens: int) -> dict[str, Any]:
    """The report on an answer whose tokens two members wrote in turn."""
    small = (tokens + 1) // 2
    return {
        "algorithm": "entropy",
        "router_threshold": 0.45,
        "tokens": {"small": small, "large": tokens - small},
        "hand_overs": tokens,
    }


def test_an_answer(server: Deployment, client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="demo", messages=MESSAGES, temperature=0)
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == reply_text(PROMPT)
    assert choice.finish_reason == "stop"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == "demo"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(PROMPT), LENGTH)
    assert answer.usage.total_tokens == len(PROMPT) + LENGTH
    fields: Any = answer
    assert fields.routing == routed(LENGTH)
    assert fields.llm_ratio == (LENGTH // 2) / LENGTH
    (sent,) = server.members.submitted
    assert (sent.submit.prompt, sent.home, sent.submit.stream) == (PROMPT, 0, False)
    assert (sent.route.algorithm, sent.route.members) == ("entropy", (0, 1))
    # Greedy, as SGLang writes it; without max_tokens, as much as fits the smaller context.
    assert (sent.sampling.top_k, sent.sampling.max_new_tokens) == (1, 512 - len(PROMPT))


def test_sampling_parameters_arrive(server: Deployment, client: openai.OpenAI) -> None:
    client.chat.completions.create(
        model="demo@1.5",
        messages=MESSAGES,
        temperature=0.6,
        top_p=0.9,
        max_completion_tokens=7,
        stop=["xx", "yy"],
        seed=5,
        extra_body={"top_k": 20, "min_p": 0.1, "stop_token_ids": [9, 3], "ignore_eos": True},
    )
    (sent,) = server.members.submitted
    sampling = sent.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.6, 0.9, 20)
    assert (sampling.min_p, sampling.max_new_tokens) == (0.1, 7)
    assert (sampling.stop, sampling.stop_token_ids) == (("xx", "yy"), (3, 9))
    assert sampling.ignore_eos
    assert (sent.route.router_threshold, sent.route.seed) == (1.5, 5)


def test_one_member_alone(server: Deployment, client: openai.OpenAI) -> None:
    answer: Any = client.chat.completions.create(model="demo/large", messages=MESSAGES)
    (sent,) = server.members.submitted
    assert (sent.home, sent.route.algorithm, sent.route.members) == (1, "single", (1,))
    assert answer.routing["tokens"] == {"large": LENGTH}
    assert answer.llm_ratio == 1.0


def test_several_samples(server: Deployment, client: openai.OpenAI) -> None:
    answer: Any = client.chat.completions.create(
        model="demo", messages=MESSAGES, n=3, extra_body={"routing": {"token_models": True}}
    )
    texts = [choice.message.content for choice in answer.choices]
    assert texts == [reply_text(PROMPT, sample) for sample in range(3)]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(PROMPT), 3 * LENGTH)
    assert sum(answer.routing["tokens"].values()) == 3 * LENGTH
    assert answer.routing["hand_overs"] == 3 * LENGTH
    assert [len(models) for models in answer.routing["token_models"]] == [LENGTH] * 3
    assert answer.routing["token_models"][0][:3] == ["small", "large", "small"]
    prefix, *samples = server.members.submitted
    assert (prefix.sampling.max_new_tokens, prefix.route.members) == (0, (0,))
    assert prefix.route.algorithm == "single"
    assert [sent.route.sample for sent in samples] == [0, 1, 2]


def test_a_stream(server: Deployment, client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="demo", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks: list[Any] = list(stream)
    content = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(content) == reply_text(PROMPT)
    assert len([text for text in content if text]) > 5
    assert not any("�" in text for text in content)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert len({chunk.id for chunk in chunks}) == 1
    last = chunks[-1]
    assert (last.choices, last.usage.completion_tokens) == ([], LENGTH)
    assert last.routing == routed(LENGTH)
    assert last.llm_ratio == (LENGTH // 2) / LENGTH
    assert server.members.submitted[0].submit.stream


def test_a_stream_reports_routing_on_request(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="demo",
        messages=MESSAGES,
        stream=True,
        extra_body={"routing": {"token_models": True, "router_threshold": 2.0}},
    )
    chunks: list[Any] = list(stream)
    last = chunks[-1]
    assert (last.choices, last.object, last.usage) == ([], "chat.completion.chunk", None)
    assert last.routing["router_threshold"] == 2.0
    assert [len(models) for models in last.routing["token_models"]] == [LENGTH]
    assert not any(hasattr(chunk, "routing") for chunk in chunks[:-1])


def test_a_plain_stream_has_no_extra_chunk(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="demo", messages=MESSAGES, stream=True))
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_a_stream_of_several_samples(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="demo",
        messages=MESSAGES,
        n=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    texts = {0: "", 1: ""}
    usage: Any = None
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
        usage = chunk.usage or usage
    assert texts == {sample: reply_text(PROMPT, sample) for sample in range(2)}
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(PROMPT), 2 * LENGTH)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_is_cut_off(client: openai.OpenAI, stream: bool) -> None:
    # "né: " appears in every answer; its first characters are streamed one by one.
    arguments: Any = {"model": "demo", "messages": MESSAGES, "stop": ["né: "], "stream": stream}
    answer: Any = client.chat.completions.create(**arguments)
    if stream:
        chunks = list(answer)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        finish = chunks[-1].choices[0]
    else:
        finish = answer.choices[0]
        text = finish.message.content
    assert text == reply_text(PROMPT).split("né: ")[0]
    assert (finish.finish_reason, finish.matched_stop) == ("stop", "né: ")


def test_a_length_limit(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="demo", messages=MESSAGES, max_tokens=5)
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content == reply_text(PROMPT)[:2]
    assert answer.usage is not None and answer.usage.completion_tokens == 5


def test_many_at_once(client: openai.OpenAI) -> None:
    # One message per prompt length, so that the answers differ.
    import concurrent.futures

    def ask(i: int) -> tuple[str | None, str]:
        messages: Any = [{"role": "user", "content": "a" * i}]
        prompt = TOKENIZER.apply_chat_template(messages, add_generation_prompt=True)
        answer = client.chat.completions.create(model="demo", messages=messages)
        return answer.choices[0].message.content, reply_text(prompt)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for got, wanted in pool.map(ask, range(1, 33)):
            assert got == wanted
