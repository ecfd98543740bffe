"""Bodies that are more work than they may be: refused before they are parsed or validated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, ValidationError

from tests.frontend.fakes import Deployment, deployment, make_config, make_roster
from tests.frontend.test_errors import CHAT, CHAT_PATH, GENERATE_PATH, TEXT, TEXT_PATH
from tokenrouter.frontend.bodies import MOST_ENTRIES
from tokenrouter.frontend.chat_messages import MOST_PARTS
from tokenrouter.frontend.operator_protocol import ParseBody
from tokenrouter.frontend.protocol import ChatRequest, GenerateBody, TextRequest
from tokenrouter.frontend.weight import ARRAY_WEIGHT, KEY_WEIGHT, OBJECT_WEIGHT, weight

LIMIT = 1_200_000
MESSAGE = {"role": "user", "content": "hi"}
JSON = {"content-type": "application/json"}


def spelt(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.parametrize("text", ['{"a":[1,{}]}', "\\", '\\"', '"', '"\\\\",[{:', "é,☺{"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_text_weighs_nothing(text: str, ascii_only: bool) -> None:
    body = {"prompt": [text, 5, text], "b": text, text: {}}
    bare = {"prompt": ["x", 5, "x"], "b": "x", "y": {}}
    expected = 4 + 3 * KEY_WEIGHT + ARRAY_WEIGHT + 2 * OBJECT_WEIGHT
    assert weight(spelt(bare), 10) == expected
    assert weight(json.dumps(body, ensure_ascii=ascii_only).encode(), 10) == expected


def test_escapes_of_utf_16_hide_nothing() -> None:
    body = json.dumps({"a": '"', "b": [{}] * 50, "c": '"'}).encode("utf-16")
    assert weight(body, 10) > 50 * OBJECT_WEIGHT


def test_more_strings_than_values_are_not_looked_into() -> None:
    assert weight(b'"a",' * 100, 10) == 100


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT_PATH, b'{"messages":[' + b"{}," * 30_000 + b"{}]}"),
        (CHAT_PATH, spelt({"messages": [MESSAGE] * 20_000})),
        (CHAT_PATH, spelt({**CHAT, "tools": [{}] * 30_000})),
        (CHAT_PATH, spelt({**CHAT, **{f"a{i}": 1 for i in range(150_000)}})),
        (TEXT_PATH, b'{"prompt":[' + b"[5]," * 100_000 + b"[5]]}"),
        (TEXT_PATH, b'{"prompt":[' + b"5," * 2_000_000 + b"5]}"),
        (GENERATE_PATH, spelt({"text": "a", "sampling_params": [{}] * 30_000})),
        ("/parse_function_call", spelt({"text": "a", "tools": [{}] * 30_000})),
    ],
    ids=["empty", "messages", "tools", "keys", "arrays", "ids", "sampling", "operators"],
)
def test_a_body_of_too_many_values(
    server: Deployment, path: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("loads", "JSONDecoder"):
        monkeypatch.setattr(f"json.{name}", _never)
    response = httpx.post(server.url + path, content=body, headers=JSON, timeout=20)
    assert response.status_code == 413
    monkeypatch.undo()
    error = response.json()["error"]
    assert f"more than {LIMIT} JSON values" in error["message"]
    assert "larger max_body_values" in error["message"]
    assert not server.members.submitted


def _never(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError("it was parsed")


TEXTS = [1] * (MOST_ENTRIES + 1)


@pytest.mark.parametrize(
    ("kind", "body", "most"),
    [
        (ChatRequest, {"messages": [{}] * 5000}, 1),
        (ChatRequest, {"messages": [5] * 5000}, 1),
        (ChatRequest, {**CHAT, "tools": [{}] * 5000}, 1),
        (ChatRequest, {**CHAT, **{f"a{i}": 1 for i in range(MOST_ENTRIES)}}, 1),
        (ChatRequest, {"messages": [{**MESSAGE, "content": [5] * (MOST_PARTS + 1)}]}, 1),
        (ChatRequest, {"messages": [{**MESSAGE, "tool_calls": [5] * (MOST_PARTS + 1)}]}, 1),
        (
            ChatRequest,
            {
                **CHAT,
                "response_format": {"type": "structural_tag", "structures": [], "triggers": TEXTS},
            },
            1,
        ),
        (ChatRequest, {**CHAT, "logit_bias": {str(i): "x" for i in range(MOST_ENTRIES + 1)}}, 1),
        (TextRequest, {"prompt": [{}] * 5000}, 5),
        (TextRequest, {"prompt": [[{}]] * 5000}, 5),
        (TextRequest, {**TEXT, "stop": TEXTS}, 2),
        (TextRequest, {**TEXT, "stop_token_ids": ["x"] * 5000}, 1),
        (TextRequest, {**TEXT, "lora_path": TEXTS}, 1),
        (GenerateBody, {"input_ids": ["x"] * 5000}, 2),
        (GenerateBody, {"text": "a", "sampling_params": [5] * 5000}, 2),
        (GenerateBody, {"text": "a", "rid": [5] * 5000, "return_logprob": ["x"] * 5000}, 4),
        (ParseBody, {"text": "a", "tools": [5] * 5000}, 1),
    ],
)
def test_few_errors_are_collected(kind: type[BaseModel], body: dict[str, Any], most: int) -> None:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(body)
    assert 1 <= caught.value.error_count() <= most


def test_what_is_legal_stays_legal() -> None:
    ids = list(range(1000, 201_000))
    body = spelt({"prompt": ids, "max_tokens": 5})
    assert weight(body, LIMIT) < LIMIT
    assert TextRequest.model_validate_json(body).prompt == ids
    batch = {"input_ids": [[5] * 400] * 2048, "sampling_params": [{"temperature": 0}] * 2048}
    assert weight(spelt(batch), LIMIT) < LIMIT
    assert GenerateBody.model_validate(batch).prompts == 2048
    chat = {**CHAT, "messages": [MESSAGE] * 9000}
    assert weight(spelt(chat), LIMIT) < LIMIT
    text = json.dumps({"prompt": '{"a": [1, 2]}' * 500_000}).encode()
    assert weight(text, LIMIT) < LIMIT


def test_the_bound_is_the_deployments(folder: Path) -> None:
    config = make_config(folder, max_body_values=300)
    with deployment(config, make_roster()) as server:
        for count, status in ((250, 413), (50, 200)):
            body = {"prompt": [5] * count, "max_tokens": 1}
            response = httpx.post(server.url + TEXT_PATH, json=body, timeout=20)
            assert response.status_code == status, response.text
        wide = {"text": "[{,:" * 60, "sampling_params": {"max_new_tokens": 1}}
        body = {"prompt": wide["text"], "max_tokens": 1}
        assert httpx.post(server.url + TEXT_PATH, json=body, timeout=20).status_code == 200
