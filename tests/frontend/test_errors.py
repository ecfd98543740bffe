"""Everything that is refused or fails, over HTTP: status, OpenAI's shape, the field's name."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import openai
import pytest

from tests.frontend.fakes import Deployment
from tokenrouter.frontend.http_errors import describe
from tokenrouter.frontend.unserved import REASONS, reason_against

CHAT: dict[str, Any] = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
TEXT: dict[str, Any] = {"model": "demo", "prompt": "hi"}
CHAT_PATH, TEXT_PATH, GENERATE_PATH = "/v1/chat/completions", "/v1/completions", "/generate"
IMAGE = [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]


def refuse(server: Deployment, path: str, body: Any, status: int = 400) -> dict[str, Any]:
    """The error that a request is answered with; nothing of it reached a member."""
    response = httpx.post(server.url + path, json=body, timeout=20)
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == ("server_error" if status >= 500 else "invalid_request_error")
    assert not server.members.submitted
    return error


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": IMAGE}]}, "messages[0].content"),
        ({"messages": None}, "messages"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 10**6}, "max_tokens"),
        ({"max_completion_tokens": 2.5}, "max_completion_tokens"),
        ({"max_completion_tokens": 10**6}, "max_completion_tokens"),
        ({"stop": ""}, "stop"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"max_token": 5}, "max_token"),
        ({"routing": {"threshold": 1}}, "routing.threshold"),
        ({"routing": {"router_threshold": "x"}}, "routing.router_threshold"),
        ({"routing": {"router_threshold": -1}}, "routing.router_threshold"),
        ({"model": "demo@x"}, "model"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
        ({"chat_template_kwargs": {"self": 5}}, "chat_template_kwargs.self"),
        ({"chat_template_kwargs": 5}, "chat_template_kwargs"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_chat_refuses(server: Deployment, change: dict[str, Any], field: str, stream: bool) -> None:
    error = refuse(server, CHAT_PATH, {**CHAT, **change, "stream": stream})
    assert error["param"] == field
    assert field.split("[")[0].split(".")[0] in error["message"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [5, 320]}, "prompt"),
        ({"prompt": [-5]}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": "a" * 512}, "prompt"),
        ({"prompt": "a" * 500, "max_tokens": 13}, "max_tokens"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"best_of": 3}, "best_of"),
    ],
)
def test_completions_refuse(server: Deployment, change: dict[str, Any], field: str) -> None:
    error = refuse(server, TEXT_PATH, {**TEXT, **change})
    assert error["param"] == field


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, None),
        ({"text": "a", "input_ids": [1]}, None),
        ({"text": []}, "text"),
        ({"input_ids": []}, "input_ids"),
        ({"input_ids": [[1], []]}, "input_ids"),
        ({"input_ids": ["a"]}, "input_ids[0]"),
        ({"text": "a", "sampling_params": {"temperature": "x"}}, "sampling_params.temperature"),
        ({"text": "a", "sampling_params": {"temprature": 1}}, "sampling_params.temprature"),
        ({"text": "a", "sampling_params": {"n": 0}}, "sampling_params.n"),
        ({"text": "a", "sampling_params": [{}]}, "sampling_params"),
        ({"text": ["a", "b"], "sampling_params": [{}]}, "sampling_params"),
        ({"text": ["a", "b"], "sampling_params": [{"n": 1}, {"n": 2}]}, "sampling_params"),
        ({"text": "a", "rid": ["x"]}, "rid"),
        (
            {"text": "a", "sampling_params": {"max_new_tokens": 600}},
            "sampling_params.max_new_tokens",
        ),
    ],
)
def test_generate_refuses(server: Deployment, body: dict[str, Any], field: str | None) -> None:
    assert refuse(server, GENERATE_PATH, body)["param"] == field


def test_a_member_alone_takes_what_it_can_hold(server: Deployment) -> None:
    body = {"model": "demo/small", "prompt": "a" * 600, "max_tokens": 5}
    assert httpx.post(server.url + TEXT_PATH, json=body).status_code == 200


@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH, GENERATE_PATH])
@pytest.mark.parametrize("content", ["{", "[]", '"x"', "5"])
def test_a_body_that_is_no_object(server: Deployment, path: str, content: str) -> None:
    headers = {"content-type": "application/json"}
    response = httpx.post(server.url + path, content=content, headers=headers)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith("the body ")


def test_an_unknown_model_is_404(server: Deployment, client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-4", messages=CHAT["messages"])
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert "'demo/large'" in caught.value.message
    for path, body in ((TEXT_PATH, TEXT), (GENERATE_PATH, {"text": "a"})):
        assert refuse(server, path, {**body, "model": "x"}, 404)["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/v1/responses/resp_1", 404),
        ("GET", "/generate", 405),
        ("PUT", "/flush_cache", 405),
    ],
)
def test_only_listed_routes(server: Deployment, method: str, path: str, status: int) -> None:
    response = httpx.request(method, server.url + path)
    assert response.status_code == status
    assert path in response.json()["error"]["message"]


@pytest.mark.parametrize("path", [*REASONS, "/v1/responses/resp_1/cancel"])
def test_what_is_not_served_is_refused_with_the_reason(server: Deployment, path: str) -> None:
    error = httpx.post(server.url + path, json={}).json()["error"]
    assert error["message"] == reason_against(path)
    assert error["message"].startswith(f"{path} is not served here: ")


def failing(path: str) -> dict[str, Any]:
    """A request that the members fail."""
    return {
        CHAT_PATH: {**CHAT, "messages": [{"role": "user", "content": "FAIL"}]},
        TEXT_PATH: {**TEXT, "prompt": "FAIL"},
        GENERATE_PATH: {"text": "FAIL"},
    }[path]


@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH, GENERATE_PATH])
def test_a_failure_on_the_way(server: Deployment, path: str) -> None:
    response = httpx.post(server.url + path, json=failing(path))
    assert response.status_code == 503
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("server_error", "service_unavailable")
    assert error["message"] == "a model died"


@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH, GENERATE_PATH])
def test_a_failure_in_a_stream_is_its_last_event(server: Deployment, path: str) -> None:
    response = httpx.post(server.url + path, json={**failing(path), "stream": True})
    assert response.status_code == 200
    *events, last, empty = response.text.split("\n\n")
    assert (len(events) > 0, empty) == (True, "")
    error = json.loads(last.removeprefix("data: "))["error"]
    assert (error["message"], error["code"]) == ("a model died", "service_unavailable")


def test_the_official_client_raises_on_a_failing_stream(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "FAIL"}]
    stream = client.chat.completions.create(model="demo", messages=messages, stream=True)
    with pytest.raises(openai.APIError, match="a model died"):
        list(stream)


def test_a_batch_with_a_failing_prompt_aborts_the_others(server: Deployment) -> None:
    body = {"text": ["STOP", "FAIL", "STOP"]}
    response = httpx.post(server.url + GENERATE_PATH, json=body, timeout=20)
    assert response.status_code == 503
    members = server.members
    assert members.wait_for(lambda: len(members.aborted) == 2)
    stopped = [s.submit.uid for s in members.submitted if s.submit.prompt == [*b"STOP"]]
    assert sorted(members.aborted) == stopped


def test_complaints_name_a_field_without_its_types() -> None:
    errors = [
        {"loc": ("body", "stop", "str"), "msg": "no string"},
        {"loc": ("body", "stop", "list[constrained-str]"), "msg": "no list"},
        {"loc": ("body", "n"), "msg": "too large"},
    ]
    assert describe(errors) == ("stop: no string, or: no list", "stop")
    assert describe([{"loc": ("body",), "msg": "no object"}]) == ("no object", None)
    said = {"type": "value_error", "msg": "Value error, no", "ctx": {"error": ValueError("no")}}
    assert describe([{"loc": ("body", "n"), **said}]) == ("n: no", "n")


@pytest.mark.parametrize(
    ("path", "content", "kind", "told"),
    [
        (CHAT_PATH, json.dumps(CHAT), "application/x-www-form-urlencoded", "Content-Type"),
        (TEXT_PATH, json.dumps(TEXT), "text/plain", "Content-Type"),
        (GENERATE_PATH, '{"text": "a"}', "application/x-www-form-urlencoded", "Content-Type"),
        ("/start_profile", "{}", "application/x-www-form-urlencoded", "Content-Type"),
        ("/abort_request", "{}", "text/plain", "Content-Type"),
        (CHAT_PATH, "", "application/json", "the body is empty"),
        (GENERATE_PATH, "", "text/plain", "the body is empty"),
        ("/abort_request", "", "application/json", "the body is empty"),
        (CHAT_PATH, "[]", "application/json", "must be a JSON object, not an array"),
        (TEXT_PATH, '"x"', "application/json", "must be a JSON object, not a string"),
    ],
)
def test_why_a_body_is_not_read(
    server: Deployment, path: str, content: str, kind: str, told: str
) -> None:
    headers = {"content-type": kind}
    response = httpx.post(server.url + path, content=content, headers=headers)
    assert response.status_code == 400
    error = response.json()["error"]
    assert told in error["message"] and error["param"] is None
    if told == "Content-Type":
        assert "'Content-Type: application/json'" in error["message"] and kind in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            CHAT_PATH,
            {**CHAT, "temprature": 1},
            "temprature: unknown field; did you mean 'temperature'?",
        ),
        (TEXT_PATH, {**TEXT, "zzz": 1}, "zzz: unknown field"),
        (
            CHAT_PATH,
            {**CHAT, "json_schema": "{}"},
            "json_schema: unknown field; give it as response_format",
        ),
        (
            GENERATE_PATH,
            {"text": "a", "sampling_params": {"temprature": 1}},
            "sampling_params.temprature: unknown field; did you mean 'temperature'?",
        ),
        (
            CHAT_PATH,
            {**CHAT, "routing": {"threshold": 1}},
            "routing.threshold: unknown field; did you mean 'router_threshold'?",
        ),
        (
            CHAT_PATH,
            {**CHAT, "stream": True, "stream_options": {"include_use": True}},
            "stream_options.include_use: unknown field; did you mean 'include_usage'?",
        ),
        ("/abort_request", {"ridd": "x"}, "ridd: unknown field; did you mean 'rid'?"),
        (CHAT_PATH, {**CHAT, "routing": 5}, "routing: must be a JSON object"),
        (
            CHAT_PATH,
            {**CHAT, "messages": [*CHAT["messages"], {"role": "king", "content": "x"}]},
            "messages[1].role: must be one of system, assistant, tool, user, got 'king'",
        ),
        (
            CHAT_PATH,
            {**CHAT, "messages": [{"content": "x"}]},
            "messages[0].role: must be one of system, assistant, tool, user",
        ),
        (
            CHAT_PATH,
            {**CHAT, "messages": [{"role": "user"}]},
            "messages[0].content: Field required",
        ),
        (
            CHAT_PATH,
            {**CHAT, "messages": ["hi"]},
            "messages[0]: must be a JSON object with role and content",
        ),
        (GENERATE_PATH, {}, "give one of text and input_ids"),
    ],
)
def test_one_clear_sentence(
    server: Deployment, path: str, body: dict[str, Any], message: str
) -> None:
    assert refuse(server, path, body)["message"] == message


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (TEXT_PATH, {**TEXT, "prompt": "\ud800abc"}, "prompt"),
        (GENERATE_PATH, {"text": "\ud800"}, "text"),
        (CHAT_PATH, {**CHAT, "messages": [{"role": "user", "content": "\udfff"}]}, "messages"),
    ],
)
def test_text_that_is_not_unicode(
    server: Deployment, path: str, body: dict[str, Any], field: str
) -> None:
    content = json.dumps(body)  # escaped: JSON can spell what UTF-8 cannot
    response = httpx.post(
        server.url + path, content=content, headers={"content-type": "application/json"}
    )
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == field


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{oops", "Expecting property name"),
        (b'{"prompt": "\xff"}', "; send it as UTF-8"),
        (b'{"prompt": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
        (
            b"[" * 50_000 + b"]" * 50_000,
            "recursion depth exceeded while decoding a JSON array from a unicode string; nest it "
            "less deeply",
        ),
    ],
    ids=["json", "utf-8", "digits", "depth"],
)
def test_a_body_that_is_no_json(server: Deployment, body: bytes, why: str) -> None:
    headers = {"content-type": "application/json"}
    response = httpx.post(server.url + TEXT_PATH, content=body, headers=headers)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["message"].startswith("the body is not valid JSON")
    assert why in error["message"]
    assert (error["param"], error["code"]) == (None, "invalid_value")


def test_a_compressed_body(server: Deployment) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    content = gzip.compress(json.dumps(TEXT).encode())
    error = httpx.post(server.url + TEXT_PATH, content=content, headers=headers).json()["error"]
    assert error["message"] == "the body is encoded as 'gzip'; send it without Content-Encoding"


LONG = "x" * 1_000_000


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (TEXT_PATH, {**TEXT, "model": LONG}, 404),
        (TEXT_PATH, {**TEXT, "model": f"demo:{LONG}"}, 404),
        (TEXT_PATH, {**TEXT, "model": f"demo@{LONG}"}, 400),
        (TEXT_PATH, {**TEXT, "model": f"demo:{LONG}", "routing": {"algorithm": "y"}}, 400),
        (TEXT_PATH, {**TEXT, "routing": {"algorithm": LONG}}, 404),
        (TEXT_PATH, {**TEXT, "routing": {LONG: 1}}, 400),
        (TEXT_PATH, {**TEXT, LONG: 1}, 400),
        (TEXT_PATH, {**TEXT, "logit_bias": {LONG: 1}}, 400),
        (GENERATE_PATH, {"text": "a", "sampling_params": {LONG: 1}}, 400),
        (CHAT_PATH, {"messages": [{"role": LONG, "content": "x"}]}, 400),
        ("/abort_request", {LONG: 1}, 400),
        ("/update_weights_from_disk", {"model_path": "x", "member": LONG}, 400),
        ("/separate_reasoning", {"text": "x", "reasoning_parser": LONG}, 400),
    ],
)
def test_a_long_value_is_not_quoted_whole(
    server: Deployment, path: str, body: dict[str, Any], status: int
) -> None:
    error = refuse(server, path, body, status)
    assert len(error["message"]) < 1500
    assert "xxx..." in error["message"]
    assert len(error["param"]) < 250


def test_what_a_template_says_of_messages(server: Deployment) -> None:
    error = refuse(server, CHAT_PATH, {"messages": [{"role": "tool", "content": "x"}]})
    why = "messages: the model's chat template does not take them: "
    assert error["message"].startswith(why)
    content = json.dumps({"messages": [{"role": "user", "content": "\ud800"}]})
    headers = {"content-type": "application/json"}
    answer = httpx.post(server.url + CHAT_PATH, content=content, headers=headers).json()
    said = answer["error"]["message"]
    assert said == "messages: cannot be encoded; is there an unpaired surrogate?"


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 1, "top_k": 2**31},
        {"temperature": 1, "top_k": 10**30},
        {"stop_token_ids": [2**70, 5]},
    ],
)
def test_numbers_no_model_has_are_harmless(server: Deployment, sampling: dict[str, Any]) -> None:
    body = {**TEXT, "max_tokens": 4, **sampling}
    assert httpx.post(server.url + TEXT_PATH, json=body, timeout=20).status_code == 200
    (sent,) = server.members.submitted
    assert sent.sampling.top_k < 2**31
    assert set(sent.sampling.stop_token_ids) <= {5}
    assert httpx.get(server.url + "/health", timeout=20).status_code == 200


def test_a_prompt_of_id_0_is_a_prompt(server: Deployment) -> None:
    body = {**TEXT, "prompt": [0, 0], "max_tokens": 2}
    assert httpx.post(server.url + TEXT_PATH, json=body, timeout=20).status_code == 200
    server.members.submitted.clear()
    assert refuse(server, TEXT_PATH, {**TEXT, "prompt": ""})["param"] == "prompt"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (TEXT_PATH, {**TEXT, "prompt": "x" * 20_000_000}, "prompt"),
        (TEXT_PATH, {**TEXT, "prompt": ["hi", "x" * 20_000_000]}, "prompt"),
        (GENERATE_PATH, {"text": "x" * 20_000_000}, "text"),
        (
            CHAT_PATH,
            {**CHAT, "messages": [{"role": "user", "content": "x" * 20_000_000}]},
            "messages",
        ),
    ],
)
def test_a_hopelessly_long_text_is_refused_untokenised(
    server: Deployment, path: str, body: dict[str, Any], field: str
) -> None:
    error = refuse(server, path, body)
    assert error["param"] == field
    assert "20000000 characters cannot fit" in error["message"]
