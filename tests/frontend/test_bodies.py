"""What requests may ask for reaches their homes, from every endpoint; the rest is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.frontend.fakes import Deployment, deployment, make_config, make_roster
from tests.frontend.test_errors import CHAT, CHAT_PATH, GENERATE_PATH, TEXT, TEXT_PATH, refuse
from tokenrouter.frontend.names import RoutingOptions
from tokenrouter.frontend.protocol import ChatRequest, SamplingBody, TextRequest
from tokenrouter.ipc.messages import Grammar, Sampling

ASKED: dict[str, Any] = {
    "frequency_penalty": 0.5,
    "presence_penalty": -1.5,
    "repetition_penalty": 1.25,
    "logit_bias": {"5": -100, "319": 2.5},
    "regex": "[a-z]+",
    "top_k": 7,
    "stop_token_ids": [9],
    "ignore_eos": True,
}


def requests(**fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """The same request to each endpoint: ``min`` and ``max`` tokens under their own names."""
    low, high = fields.pop("min", 0), fields.pop("max", 9)
    params = {**fields, "min_new_tokens": low, "max_new_tokens": high}
    return [
        (CHAT_PATH, {**CHAT, **fields, "min_tokens": low, "max_tokens": high}),
        (TEXT_PATH, {**TEXT, **fields, "min_tokens": low, "max_tokens": high}),
        (GENERATE_PATH, {"text": "hi", "sampling_params": params}),
    ]


def sent(server: Deployment, path: str, body: dict[str, Any]) -> Sampling:
    """What the home gets of a request."""
    response = httpx.post(server.url + path, json=body, timeout=20)
    assert response.status_code == 200, response.text
    return server.members.submitted[-1].sampling


@pytest.mark.parametrize(("path", "body"), requests(min=3, max=5, **ASKED))
def test_everything_about_sampling_arrives(
    server: Deployment, path: str, body: dict[str, Any]
) -> None:
    got = sent(server, path, {**body, "seed": 11})
    assert (got.frequency_penalty, got.presence_penalty) == (0.5, -1.5)
    assert got.repetition_penalty == 1.25
    assert got.logit_bias == {5: -100.0, 319: 2.5}
    assert (got.min_new_tokens, got.max_new_tokens) == (3, 5)
    assert got.grammar == Grammar("regex", "[a-z]+")
    assert (got.top_k, got.stop_token_ids, got.ignore_eos, got.seed) == (7, (9,), True, 11)
    assert server.members.submitted[-1].route.seed == 11


@pytest.mark.parametrize(("path", "body"), requests())
def test_a_seed_of_routing_is_not_that_of_tokens(
    server: Deployment, path: str, body: dict[str, Any]
) -> None:
    got = sent(server, path, {**body, "seed": 11, "routing": {"seed": 4}})
    assert (got.seed, server.members.submitted[-1].route.seed) == (11, 4)


@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH])
def test_null_is_not_given(server: Deployment, path: str) -> None:
    kind, base = (ChatRequest, CHAT) if path == CHAT_PATH else (TextRequest, TEXT)
    optional = {name for name, field in kind.model_fields.items() if not field.is_required()}
    assert optional > {"temperature", "top_p", "n", "stream", "logprobs", "max_tokens"}
    plain = sent(server, path, base)
    assert sent(server, path, {**dict.fromkeys(optional), **base}) == plain
    routed = {**base, "routing": dict.fromkeys(RoutingOptions.model_fields)}
    assert sent(server, path, routed) == plain
    server.members.submitted.clear()
    for name in kind.model_fields.keys() - optional:
        assert refuse(server, path, {**base, name: None})["param"] == name


def test_null_in_sampling_params(server: Deployment) -> None:
    nulls = dict.fromkeys(SamplingBody.model_fields.keys() - {"max_new_tokens"})
    plain = sent(server, GENERATE_PATH, {"text": "hi"})
    given = {"text": "hi", "sampling_params": nulls, "stream": None, "return_logprob": None}
    assert sent(server, GENERATE_PATH, given) == plain


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
SCHEMA_FORMAT = {"type": "json_schema"}
TAG = {
    "type": "structural_tag",
    "structures": [{"begin": "<a>", "schema": {"type": "integer"}, "end": "</a>"}],
    "triggers": ["<a>"],
}


@pytest.mark.parametrize(
    ("path", "body", "kind", "text"),
    [
        (
            CHAT_PATH,
            {"response_format": {"type": "json_object"}},
            "json_schema",
            {"type": "object"},
        ),
        (
            CHAT_PATH,
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": SCHEMA},
                }
            },
            "json_schema",
            SCHEMA,
        ),
        (CHAT_PATH, {"response_format": TAG}, "structural_tag", TAG),
        (CHAT_PATH, {"ebnf": "root ::= [a-z]"}, "ebnf", "root ::= [a-z]"),
        (TEXT_PATH, {"json_schema": json.dumps(SCHEMA)}, "json_schema", SCHEMA),
        (TEXT_PATH, {"ebnf": "root ::= [a-z]"}, "ebnf", "root ::= [a-z]"),
        (GENERATE_PATH, {"json_schema": json.dumps(SCHEMA)}, "json_schema", SCHEMA),
        (GENERATE_PATH, {"structural_tag": json.dumps(TAG)}, "structural_tag", TAG),
    ],
)
def test_grammars_arrive(
    server: Deployment, path: str, body: dict[str, Any], kind: str, text: Any
) -> None:
    whole = {CHAT_PATH: {**CHAT, **body}, TEXT_PATH: {**TEXT, **body}}.get(
        path, {"text": "hi", "sampling_params": body}
    )
    grammar = sent(server, path, whole).grammar
    assert grammar is not None and grammar.kind == kind
    assert (json.loads(grammar.text) if isinstance(text, dict) else grammar.text) == text


def test_plain_text_is_no_grammar(server: Deployment) -> None:
    assert sent(server, CHAT_PATH, {**CHAT, "response_format": {"type": "text"}}).grammar is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"frequency_penalty": 2.1}, "frequency_penalty"),
        ({"presence_penalty": -2.1}, "presence_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 2.5}, "repetition_penalty"),
        ({"repetition_penalty": 1e-300}, "repetition_penalty"),
        ({"logit_bias": {"5": 1e308}}, "logit_bias"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"320": 1}}, "logit_bias.320"),
        ({"logit_bias": {str(i): 1 for i in range(5000)}}, "logit_bias"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"stop_token_ids": [1] * 5000}, "stop_token_ids"),
        ({"regex": ""}, "regex"),
        ({"regex": "a" * 300_000}, "regex"),
        ({"regex": "a", "ebnf": "root ::= 'a'"}, "ebnf"),
        ({"min": -1}, "min"),
        ({"min": 10}, "min"),
        ({"seed": 2**63}, "seed"),
    ],
)
@pytest.mark.parametrize("endpoint", range(3))
def test_what_is_wrong_anywhere(
    server: Deployment, endpoint: int, change: dict[str, Any], field: str
) -> None:
    path, body = requests(**{k: v for k, v in change.items() if k != "seed"})[endpoint]
    body |= {k: v for k, v in change.items() if k == "seed"}
    in_params = path == GENERATE_PATH and field != "seed"
    if field == "min":
        field = "min_new_tokens" if in_params else "min_tokens"
    wanted = f"sampling_params.{field}" if in_params else field
    error = refuse(server, path, body)
    assert re.sub(r"logit_bias\.(x|-1|5)$", "logit_bias", error["param"]) == wanted


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (CHAT_PATH, {"top_logprobs": 2}, "top_logprobs"),
        (CHAT_PATH, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (CHAT_PATH, {"response_format": SCHEMA_FORMAT}, "response_format.json_schema.schema"),
        (
            CHAT_PATH,
            {"response_format": {**SCHEMA_FORMAT, "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        (CHAT_PATH, {"response_format": {"type": "json_object"}, "regex": "a"}, "regex"),
        (CHAT_PATH, {"response_format": {"type": "yaml"}}, "response_format.type"),
        (CHAT_PATH, {"stream": True, "stream_options": {"usage": True}}, "stream_options.usage"),
        (TEXT_PATH, {"logprobs": 21}, "logprobs"),
        (TEXT_PATH, {"logprobs": 2, "echo": True}, "echo"),
        (GENERATE_PATH, {"return_logprob": True, "logprob_start_len": 0}, "logprob_start_len"),
        (GENERATE_PATH, {"return_logprob": True, "token_ids_logprob": [1]}, "token_ids_logprob"),
        (GENERATE_PATH, {"return_logprob": True, "top_logprobs_num": 21}, "top_logprobs_num"),
        (TEXT_PATH, {"prompt": [-1], "echo": True}, "prompt"),
        (TEXT_PATH, {"prompt": [[65], [10**20]], "echo": True}, "prompt"),
        (GENERATE_PATH, {"return_logprob": [True]}, "return_logprob"),
        (
            GENERATE_PATH,
            {"text": ["a"], "return_logprob": [True], "sampling_params": {"n": 2}},
            "return_logprob",
        ),
    ],
)
def test_what_is_wrong_here(
    server: Deployment, path: str, body: dict[str, Any], field: str
) -> None:
    base = {CHAT_PATH: CHAT, TEXT_PATH: TEXT, GENERATE_PATH: {"text": "hi"}}[path]
    assert refuse(server, path, {**base, **body})["param"] == field


def test_a_grammar_that_a_member_cannot_read_is_the_fields_fault(server: Deployment) -> None:
    body = {**TEXT, "prompt": "BAD GRAMMAR", "regex": "("}
    response = httpx.post(server.url + TEXT_PATH, json=body, timeout=20)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "regex"
    assert response.json()["error"]["message"] == "regex: no such grammar"


def test_timed_members_follow_no_grammar(folder: Path) -> None:
    models = [{"name": "a", "model_path": folder}, {"name": "b", "engine": "timed", "step_ms": 1}]
    with deployment(make_config(folder, models=models), make_roster()) as server:
        for path, body in requests(regex="a"):
            error = refuse(server, path, body)
            assert error["param"] == ("sampling_params." * (path == GENERATE_PATH)) + "regex"
            assert "'b' is a timed member" in error["message"]
        chat = {**CHAT, "response_format": {"type": "json_object"}}
        assert refuse(server, CHAT_PATH, chat)["param"] == "response_format"
        alone = {**TEXT, "model": "demo/a", "regex": "a"}
        assert sent(server, TEXT_PATH, alone).grammar == Grammar("regex", "a")
