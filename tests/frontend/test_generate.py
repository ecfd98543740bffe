"""SGLang's native endpoint."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import httpx
import pytest

from tests.frontend.fakes import TOKENIZER, Deployment, reply, reply_text

PROMPT = TOKENIZER.encode("hello")


def post(server: Deployment, **body: Any) -> Any:
    response = httpx.post(f"{server.url}/generate", json=body, timeout=20)
    assert response.status_code == 200, response.text
    return response.json()


def stream(server: Deployment, **body: Any) -> list[dict[str, Any]]:
    body["stream"] = True
    response = httpx.post(f"{server.url}/generate", json=body, timeout=20)
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, done, empty = response.text.split("\n\n")
    assert (done, empty) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def test_text(server: Deployment) -> None:
    answer = post(server, text="hello", sampling_params={"temperature": 0}, rid="mine")
    tokens = reply(PROMPT, 0)
    assert answer["text"] == reply_text(PROMPT)
    assert answer["output_ids"] == tokens
    meta = answer["meta_info"]
    assert meta["id"] == "mine"
    assert meta["finish_reason"]["type"] == "stop"
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (len(PROMPT), len(tokens))
    assert meta["cached_tokens"] == 2
    assert meta["routing"]["tokens"]["large"] == len(tokens) // 2
    assert meta["llm_ratio"] == (len(tokens) // 2) / len(tokens)
    assert 0 < meta["e2e_latency"] < 20
    assert server.members.submitted[0].sampling.max_new_tokens == 128


def test_ids_and_the_model_of_each_token(server: Deployment) -> None:
    answer = post(server, input_ids=PROMPT, model="demo@3", routing={"token_models": True})
    tokens = reply(PROMPT, 0)
    assert answer["output_ids"] == tokens
    models = answer["meta_info"]["routing"]["token_models"]
    assert models == [("small", "large")[i % 2] for i in range(len(tokens))]
    assert answer["meta_info"]["routing"]["router_threshold"] == 3


def test_a_batch(server: Deployment) -> None:
    answers = post(
        server,
        text=["one", "three"],
        sampling_params=[{"max_new_tokens": 3}, {"max_new_tokens": 4}],
        rid=["a", "b"],
    )
    ids = [reply(TOKENIZER.encode(text), 0) for text in ("one", "three")]
    assert [answer["output_ids"] for answer in answers] == [ids[0][:3], ids[1][:4]]
    assert [answer["meta_info"]["id"] for answer in answers] == ["a", "b"]
    assert [sent.route.sample for sent in server.members.submitted] == [0, 0]


def test_a_batch_of_ids_with_samples(server: Deployment) -> None:
    answers = post(
        server, input_ids=[[65], [66, 67]], sampling_params={"n": 2, "max_new_tokens": 50}, rid="a"
    )
    wanted = [reply_text(prompt, i) for prompt in ([65], [66, 67]) for i in range(2)]
    assert [answer["text"] for answer in answers] == wanted
    assert [answer["meta_info"]["id"] for answer in answers] == ["a_0", "a_1", "a_2", "a_3"]


def test_the_unsaid_length_shrinks_to_what_fits(server: Deployment) -> None:
    post(server, text="a" * 500)
    post(server, text="a" * 500, sampling_params={"max_new_tokens": None})
    post(server, text="a" * 12, sampling_params={"max_new_tokens": None})
    post(server, text=["a" * 12, "a" * 500], sampling_params={"max_new_tokens": None})
    lengths = [sent.sampling.max_new_tokens for sent in server.members.submitted]
    assert lengths == [12, 12, 500, 500, 12]


def test_a_stream_gives_every_id_once(server: Deployment) -> None:
    events = stream(server, text="hello", routing={"token_models": True})
    tokens = reply(PROMPT, 0)
    assert [token for event in events for token in event["output_ids"]] == tokens
    assert events[-1]["text"] == reply_text(PROMPT)
    for before, after in pairwise(events):
        assert after["text"].startswith(before["text"])
        assert before["meta_info"]["finish_reason"] is None
    assert len(events[-1]["meta_info"]["routing"]["token_models"]) == len(tokens)


def test_a_stream_of_a_batch(server: Deployment) -> None:
    events = stream(server, text=["one", "three"], rid="r")
    for index, text in enumerate(("one", "three")):
        tokens = reply(TOKENIZER.encode(text), 0)
        mine = [event for event in events if event["index"] == index]
        assert [token for event in mine for token in event["output_ids"]] == tokens
        assert {event["meta_info"]["id"] for event in mine} == {f"r_{index}"}


@pytest.mark.parametrize("streamed", [False, True])
def test_no_token_asked(server: Deployment, streamed: bool) -> None:
    body = {"text": "hello", "sampling_params": {"max_new_tokens": 0}}
    answer = stream(server, **body)[-1] if streamed else post(server, **body)
    assert (answer["text"], answer["output_ids"]) == ("", [])
    assert answer["meta_info"]["finish_reason"]["type"] == "length"
    assert answer["meta_info"]["routing"]["algorithm"] == "entropy"
    assert server.members.submitted[0].route.members == (0,)
