"""What operators ask for, over HTTP: one answer per member, nothing lost, nothing twice."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.frontend.fakes import Deployment


@pytest.fixture
def http(server: Deployment) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=20) as client:
        yield client


@pytest.fixture
def pool() -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        yield pool


DONE = {"success": True, "message": "done"}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_flush(server: Deployment, http: httpx.Client, method: str) -> None:
    response = http.request(method, "/flush_cache")
    assert response.status_code == 200
    assert response.json()["members"] == {"small": DONE, "large": DONE}
    assert [(m, c.action) for m, c in server.members.controls] == [
        (0, "flush_cache"),
        (1, "flush_cache"),
    ]


def test_a_member_that_is_busy_for_a_moment_is_asked_again(
    server: Deployment, http: httpx.Client
) -> None:
    server.members.busy = {1: 2}
    response = http.post("/flush_cache")
    assert response.json()["members"] == {"small": DONE, "large": DONE}
    assert [member for member, _ in server.members.controls] == [0, 1, 1, 1]


def test_a_member_that_stays_busy_is_a_conflict(server: Deployment, http: httpx.Client) -> None:
    server.members.busy = {1: 10**6}
    response = http.post("/flush_cache")
    assert response.status_code == 409
    assert response.json()["members"]["small"] == DONE
    assert response.json()["error"]["message"] == "large: 1 requests are here"
    assert http.post("/generate", json={"text": "a"}).status_code == 200


@pytest.mark.parametrize("path", ["/flush_cache", "/update_weights_from_disk"])
def test_not_while_requests_are_served(
    server: Deployment, http: httpx.Client, pool: concurrent.futures.Executor, path: str
) -> None:
    ask = pool.submit(http.post, "/generate", json={"text": "STOP", "rid": "mine"})
    assert server.members.wait_for(lambda: len(server.members.submitted) == 1)
    response = http.post(path, json={"member": "small", "model_path": "/x"})
    assert response.status_code == 409
    assert response.json()["error"]["code"] == "conflict"
    assert "1 requests are being served" in response.json()["error"]["message"]
    assert not server.members.controls
    assert http.post("/abort_request", json={"rid": "mine"}).json() == {"aborted": 1}
    assert ask.result().json()["meta_info"]["finish_reason"]["type"] == "abort"
    assert http.post("/flush_cache").status_code == 200


def test_requests_wait_for_an_action_to_end(
    server: Deployment, http: httpx.Client, pool: concurrent.futures.Executor
) -> None:
    server.members.busy = {0: 10**6}
    flush = pool.submit(http.post, "/flush_cache")
    assert server.members.wait_for(lambda: len(server.members.controls) > 3)
    asks = [pool.submit(http.post, "/generate", json={"text": f"a{i}"}) for i in range(4)]
    assert not server.members.wait_for(lambda: bool(server.members.submitted), 0.1)
    server.members.busy = {}
    assert flush.result().status_code == 200
    assert [ask.result().status_code for ask in asks] == [200] * 4


def test_weights_of_one_member(server: Deployment, http: httpx.Client) -> None:
    body = {"member": "large", "model_path": "/new", "weight_version": "v2"}
    response = http.post("/update_weights_from_disk", json=body)
    assert response.status_code == 200
    assert response.json()["members"] == {"large": DONE}
    ((member, control),) = server.members.controls
    assert (member, control.arguments["model_path"]) == (1, "/new")
    assert http.get("/get_weight_version").json() == {"weight_version": "v2"}
    answer = http.post("/generate", json={"text": "a"}).json()
    assert answer["meta_info"]["weight_version"] == "v2"
    http.post("/update_weight_version", json={"new_version": "default"})
    assert http.get("/get_weight_version").json() == {"weight_version": "default"}


def test_weights_that_cannot_be_loaded(server: Deployment, http: httpx.Client) -> None:
    server.members.failing = {1}
    body = {"member": "large", "model_path": "/new", "weight_version": "v3"}
    response = http.post("/update_weights_from_disk", json=body)
    assert response.status_code == 400
    assert response.json()["success"] is False
    assert response.json()["error"]["message"] == "large: cannot"
    assert http.get("/get_weight_version").json() == {"weight_version": "default"}


@pytest.mark.parametrize("member", [None, "huge"])
def test_whose_weights_must_be_said(server: Deployment, http: httpx.Client, member: Any) -> None:
    body = {"member": member, "model_path": "/new"}
    response = http.post("/update_weights_from_disk", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "member"
    assert "'small', 'large'" in response.json()["error"]["message"]


def test_weights_after_an_abort_of_everything(
    server: Deployment, http: httpx.Client, pool: concurrent.futures.Executor
) -> None:
    asks = [pool.submit(http.post, "/generate", json={"text": "STOP"}) for _ in range(3)]
    assert server.members.wait_for(lambda: len(server.members.submitted) == 3)
    body = {"member": "small", "model_path": "/new", "abort_all_requests": True}
    assert http.post("/update_weights_from_disk", json=body).status_code == 200
    for ask in asks:
        assert ask.result().json()["meta_info"]["finish_reason"]["type"] == "abort"


def test_profile(server: Deployment, http: httpx.Client) -> None:
    body = {"output_dir": "/traces", "activities": ["CPU"]}
    assert http.post("/start_profile", json=body).status_code == 200
    (_, small), (_, large) = server.members.controls
    assert small.arguments["output_dir"] == "/traces"
    assert small.arguments["profile_id"].endswith("-small")
    assert large.arguments["profile_id"].endswith("-large")
    assert http.get("/stop_profile").status_code == 200
    assert http.get("/start_profile").status_code == 200
    as_sglang = {"start_step": None, "num_steps": None, "profile_by_stage": False}
    assert http.post("/start_profile", json=as_sglang).status_code == 200
    response = http.post("/start_profile", json={"num_steps": 5})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "num_steps")
    assert response.json()["error"]["message"].startswith("num_steps: not served: members count")
    error = http.post("/start_profile", json={"output_dirr": "x"}).json()["error"]
    assert error["message"] == "output_dirr: unknown field; did you mean 'output_dir'?"


def test_health_generate_writes_a_token_on_every_member(
    server: Deployment, http: httpx.Client
) -> None:
    assert http.get("/health_generate").status_code == 200
    probes = [(sent.home, sent.route.members) for sent in server.members.submitted]
    assert sorted(probes) == [(0, (0,)), (1, (1,))]
    assert {sent.sampling.max_new_tokens for sent in server.members.submitted} == {1}


@pytest.mark.parametrize(
    ("path", "body", "rid"),
    [
        ("/generate", {"text": "STOP", "rid": "1"}, "1"),
        ("/v1/completions", {"prompt": "STOP", "rid": "1"}, "1"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "STOP"}], "rid": "1"},
            "1",
        ),
    ],
)
def test_an_abort_is_exact(
    server: Deployment,
    http: httpx.Client,
    pool: concurrent.futures.Executor,
    path: str,
    body: dict[str, Any],
    rid: str,
) -> None:
    other = {**body, "rid": "10"}
    asks = [pool.submit(http.post, path, json=each) for each in (body, other)]
    assert server.members.wait_for(lambda: len(server.members.submitted) == 2)
    assert http.post("/abort_request", json={"rid": "x"}).json() == {"aborted": 0}
    assert http.post("/abort_request", json={"rid": rid}).json() == {"aborted": 1}
    assert "abort" in asks[0].result().text
    assert not asks[1].done()
    assert http.post("/abort_request", json={"rid": "10"}).json() == {"aborted": 1}
    assert asks[1].result().status_code == 200


@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        ("/v1/completions", {"prompt": "HALF"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "HALF"}]}),
    ],
)
@pytest.mark.parametrize("everything", [False, True])
def test_an_abort_answers_what_was_written(
    server: Deployment,
    http: httpx.Client,
    pool: concurrent.futures.Executor,
    path: str,
    prompt: dict[str, Any],
    everything: bool,
) -> None:
    ask = pool.submit(http.post, path, json={**prompt, "rid": "mine", "n": 2})
    # A request for no token comes first.
    assert server.members.wait_for(lambda: len(server.members.submitted) == 3)
    which = {"abort_all": True} if everything else {"rid": "mine"}
    assert http.post("/abort_request", json=which).json() == {"aborted": 2}
    answer = ask.result().json()
    choices = answer["choices"]
    texts = [each["message"]["content"] if "message" in each else each["text"] for each in choices]
    assert texts == ["🙂0", "🙂1"]
    assert [each["finish_reason"] for each in choices] == ["abort", "abort"]
    prompt_tokens = len(server.members.submitted[0].submit.prompt)
    assert answer["usage"]["prompt_tokens"] == prompt_tokens
    assert answer["usage"]["completion_tokens"] == 10
    assert answer["routing"]["tokens"] == {"small": 6, "large": 4}


@pytest.mark.parametrize(
    ("text", "written", "split"),
    [("HALF", "🙂0", {"small": 3, "large": 2}), ("STOP", "", {"small": 0, "large": 0})],
)
def test_an_abort_of_sglangs_own_endpoint(
    server: Deployment,
    http: httpx.Client,
    pool: concurrent.futures.Executor,
    text: str,
    written: str,
    split: dict[str, int],
) -> None:
    ask = pool.submit(http.post, "/generate", json={"text": text, "rid": "mine"})
    assert server.members.wait_for(lambda: len(server.members.submitted) == 1)
    assert http.post("/abort_request", json={"rid": "mine"}).json() == {"aborted": 1}
    answer = ask.result().json()
    assert (answer["text"], bytes(answer["output_ids"]).decode()) == (written, written)
    meta = answer["meta_info"]
    assert meta["finish_reason"]["type"] == "abort"
    prompt_tokens = len(server.members.submitted[0].submit.prompt)
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (
        prompt_tokens,
        len(answer["output_ids"]),
    )
    assert meta["routing"]["tokens"] == split


def test_one_choice_of_several_can_be_aborted(
    server: Deployment, http: httpx.Client, pool: concurrent.futures.Executor
) -> None:
    body = {"text": ["STOP", "STOP", "a"], "rid": ["x", "y", "z"]}
    ask = pool.submit(http.post, "/generate", json=body)
    assert server.members.wait_for(lambda: len(server.members.submitted) == 3)
    assert http.post("/abort_request", json={"rid": "y"}).json() == {"aborted": 1}
    assert http.post("/abort_request", json={"rid": "y"}).json() == {"aborted": 0}
    assert http.post("/abort_request", json={"rid": "x"}).json() == {"aborted": 1}
    finishes = [each["meta_info"]["finish_reason"]["type"] for each in ask.result().json()]
    assert finishes == ["abort", "abort", "stop"]


def test_the_id_of_a_stream_aborts_it(server: Deployment, http: httpx.Client) -> None:
    long = {"text": "a" * 300, "stream": True}
    with http.stream("POST", "/generate", json=long) as stream:
        lines = stream.iter_lines()
        first = next(lines)
        rid = httpx.Response(200, text=first.removeprefix("data: ")).json()["meta_info"]["id"]
        aborted = httpx.post(f"{server.url}/abort_request", json={"rid": rid}).json()["aborted"]
        rest = "".join(lines)
    assert aborted in (0, 1)
    assert ('"type":"abort"' in rest) == (aborted == 1)
    assert rest.endswith("data: [DONE]")


@pytest.mark.parametrize("body", [{}, {"rid": ""}, {"rid": "", "abort_all": False}])
def test_an_abort_must_say_whom(http: httpx.Client, body: dict[str, Any]) -> None:
    response = http.post("/abort_request", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "rid")


def test_a_pause_ends_requests_and_holds_new_ones_back(
    server: Deployment, http: httpx.Client, pool: concurrent.futures.Executor
) -> None:
    old = pool.submit(http.post, "/generate", json={"text": "STOP"})
    assert server.members.wait_for(lambda: len(server.members.submitted) == 1)
    assert http.post("/pause_generation").json()["status"] == "ok"
    assert old.result().json()["meta_info"]["finish_reason"]["type"] == "abort"
    new = pool.submit(http.post, "/generate", json={"text": "a"})
    assert not server.members.wait_for(lambda: len(server.members.submitted) > 1, 0.1)
    assert http.get("/health_generate").status_code == 200
    assert http.post("/continue_generation").json()["status"] == "ok"
    assert new.result().status_code == 200


def test_one_model(http: httpx.Client) -> None:
    for name in ("demo", "demo/large", "demo@0.3"):
        card = http.get(f"/v1/models/{name}").json()
        assert (card["id"], card["object"]) == (name, "model")
    response = http.get("/v1/models/demo/huge")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


def test_load(http: httpx.Client) -> None:
    idle = {"num_reqs": 0, "num_visits": 0, "num_tokens": 0}
    assert http.get("/get_load").json() == {"small": idle, "large": idle}


def test_tool_calls_in_a_text(http: httpx.Client) -> None:
    text = 'So:<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    body = {"text": text, "tools": tools, "tool_call_parser": "qwen25"}
    parsed = http.post("/parse_function_call", json=body).json()
    assert parsed["normal_text"] == "So:"
    assert [(c["name"], c["parameters"]) for c in parsed["calls"]] == [("add", '{"a": 1}')]
    for change, field in (
        ({"tool_call_parser": "none"}, "tool_call_parser"),
        ({"tool_call_parser": None}, "tool_call_parser"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ):
        response = http.post("/parse_function_call", json={**body, **change})
        assert (response.status_code, response.json()["error"]["param"]) == (400, field)


def test_reasoning_in_a_text(http: httpx.Client) -> None:
    body = {"text": "<think>why</think>because", "reasoning_parser": "qwen3"}
    parsed = http.post("/separate_reasoning", json=body).json()
    assert parsed == {"reasoning_text": "why", "text": "because"}
    response = http.post("/separate_reasoning", json={"text": "x"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "reasoning_parser")
