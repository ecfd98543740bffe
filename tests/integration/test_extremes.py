"""Requests at the edge of what may be asked for: answered or refused; no member dies of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.server import Server

EVERY_ID = list(range(320))
EXTREMES: list[dict[str, Any]] = [
    {"logit_bias": {"65": 10_000, "66": -10_000}},
    {"logit_bias": {str(i): -10_000 for i in EVERY_ID}},
    {"logit_bias": {str(i): -10_000 for i in EVERY_ID}, "regex": "[0-9]+"},
    {"repetition_penalty": 0.01, "frequency_penalty": -2, "presence_penalty": -2},
    {"repetition_penalty": 1e-300},
    {"repetition_penalty": 2, "frequency_penalty": 2, "presence_penalty": 2},
    {"temperature": 1e-5},
    {"temperature": 1e300},
    {"temperature": 1e300, "seed": -5, "top_p": 1e-320},
    {"top_p": 1e-320, "min_p": 1},
    {"stop_token_ids": EVERY_ID, "min_tokens": 6},
    {"stop_token_ids": EVERY_ID, "min_tokens": 6, "seed": 1, "regex": "a"},
    {"regex": "a", "min_tokens": 6},
    {"regex": "(a{1000}){1000}"},
    {"json_schema": json.dumps({"$ref": "#"})},
    {"json_schema": json.dumps({"not": {}})},
    {"json_schema": json.dumps({"type": "nonsense"})},
    {"json_schema": "5"},
    {"ebnf": "root ::= root"},
    {"ebnf": "x ::= y"},
    {"logprobs": 20, "temperature": 1e-5, "n": 3},
]


@pytest.mark.parametrize("index", range(len(EXTREMES)))
def test_extremes(demo_server: Server, index: int) -> None:
    body = {"prompt": "Dan has 4 boxes", "max_tokens": 6, **EXTREMES[index]}
    answer = demo_server.client.post("/v1/completions", json=body)
    assert answer.status_code in (200, 400), answer.text
    processes = demo_server.client.get("/get_server_info").json()["processes"]
    assert {name: each["restarts"] for name, each in processes.items()} == dict.fromkeys(
        processes, 0
    )


def nested(depth: int) -> str:
    """A chat whose JSON schema is ``depth`` objects deep."""
    schema = '{"a":' * depth + "1" + "}" * depth
    format_ = f'{{"type":"json_schema","json_schema":{{"name":"x","schema":{schema}}}}}'
    messages = '[{"role":"user","content":"x"}]'
    return f'{{"messages":{messages},"max_tokens":3,"response_format":{format_}}}'


@pytest.mark.parametrize(
    ("body", "statuses"),
    [
        (nested(100), {200, 400}),
        (nested(900), {200, 400}),
        (nested(10_000), {400}),
        (nested(200_000), {413}),
        ("[" * 50_000, {400}),
        ("[" * 100_000, {413}),
        ('{"prompt":"a","max_tokens":' + "9" * 5000 + "}", {400}),
        ('{"prompt":"a","temperature":NaN}', {400}),
        ('{"prompt":"a","temperature":1e999}', {400}),
    ],
    ids=range(9),
)
def test_bodies_that_strain_a_parser(demo_server: Server, body: str, statuses: set[int]) -> None:
    headers = {"content-type": "application/json"}
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    answer = demo_server.client.post(path, content=body, headers=headers)
    assert answer.status_code in statuses, answer.text
    demo_server.assert_clean()
