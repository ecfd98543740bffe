"""The API key and the limits of a guarded deployment, over HTTP."""

from __future__ import annotations

import concurrent.futures
import http.client
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from tests.frontend.fakes import Deployment, deployment, leave, make_config, make_roster

KEY = "s3cret"
HEADERS = {"authorization": f"Bearer {KEY}".encode()}
LIMIT = 20_000
MESSAGES = [{"role": "user", "content": "x"}]
PATHS = ("/v1/models", "/generate", "/docs", "/nothing", "/get_server_info")


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Deployment]:
    """One with a key, small bodies and few requests; hides the session's."""
    config = make_config(folder, api_key=KEY, max_body_bytes=LIMIT, max_requests=4)
    with deployment(config, make_roster()) as running:
        yield running


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer"},
        {"authorization": f"Basic {KEY}".encode()},
        {"authorization": f"Bearer {KEY}x".encode()},
        {"authorization": b"\xff\xfe"},
    ],
)
@pytest.mark.parametrize("path", PATHS)
def test_without_the_key_nothing_is_told(server: Deployment, path: str, headers: Any) -> None:
    response = httpx.get(server.url + path, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    error = response.json()["error"]
    assert (error["code"], error["type"]) == ("invalid_api_key", "invalid_request_error")


def test_with_the_key_everything_is_as_usual(server: Deployment) -> None:
    assert httpx.get(server.url + "/v1/models", headers=HEADERS).status_code == 200
    lower = {"authorization": f"bearer  {KEY}".encode()}
    assert httpx.get(server.url + "/v1/models", headers=lower).status_code == 200


def test_health_and_metrics_need_no_key(server: Deployment) -> None:
    for path in ("/health", "/health_generate", "/metrics"):
        assert httpx.get(server.url + path, timeout=20).status_code == 200


def test_the_key_is_not_shown(server: Deployment) -> None:
    assert KEY not in httpx.get(server.url + "/get_server_info", headers=HEADERS).text


def test_a_large_body_is_refused(server: Deployment) -> None:
    body = {"prompt": "x" * LIMIT}
    response = httpx.post(server.url + "/v1/completions", json=body, headers=HEADERS)
    assert response.status_code == 413
    assert "max_body_bytes" in response.json()["error"]["message"]
    fits = {"prompt": "x" * 200, "user": "x" * (LIMIT - 300), "max_tokens": 1}
    answer = httpx.post(server.url + "/v1/completions", json=fits, headers=HEADERS, timeout=20)
    assert answer.status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_body_is_refused_unread(server: Deployment, chunked: bool) -> None:
    """The answer comes while most of the announced body has not been sent."""
    host = urlsplit(server.url)
    assert host.hostname is not None
    with socket.create_connection((host.hostname, host.port or 0), timeout=10) as connection:
        size = "transfer-encoding: chunked" if chunked else "content-length: 1000000000"
        head = f"POST /generate HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
        head += f"content-type: application/json\r\n{size}\r\n\r\n"
        connection.sendall(head.encode())
        if chunked:
            connection.sendall(b"8000\r\n" + b" " * 0x8000 + b"\r\n")
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == 413
        assert response.headers["connection"] == "close"
        assert b"max_body_bytes" in response.read()


def test_more_requests_than_there_is_room_for(server: Deployment) -> None:
    """Those that are there go on; the others may try again; nothing is lost."""
    options: Any = {"headers": HEADERS, "timeout": 20}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        held = [
            pool.submit(httpx.post, f"{server.url}/generate", json={"text": "STOP"}, **options)
            for _ in range(4)
        ]
        assert server.members.wait_for(lambda: len(server.members.submitted) == 4)
        response = httpx.post(f"{server.url}/generate", json={"text": "a"}, **options)
        assert response.status_code == 429
        assert response.headers["retry-after"] == "1"
        assert response.json()["error"]["code"] == "rate_limit_exceeded"
        # A probe is no request of a client.
        assert httpx.get(f"{server.url}/health_generate", **options).status_code == 200
        everything = {"abort_all": True}
        response = httpx.post(f"{server.url}/abort_request", json=everything, **options)
        assert response.json() == {"aborted": 4}
        for each in held:
            answer = each.result().json()
            assert answer["meta_info"]["finish_reason"]["type"] == "abort"
    answer = httpx.post(f"{server.url}/generate", json={"text": "a"}, **options)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (
            "/v1/chat/completions",
            {"messages": MESSAGES, "n": 5},
            "messages",
        ),
        ("/v1/completions", {"prompt": ["a", "b", "c"], "n": 2}, "prompt"),
        ("/v1/completions", {"prompt": [[1], [2], [3], [4], [5]]}, "prompt"),
        ("/v1/completions", {"prompt": [[10**6]] * 5, "echo": True}, "prompt"),
        ("/generate", {"text": ["a"] * 5}, "text"),
        ("/generate", {"input_ids": [[1], [2]], "sampling_params": {"n": 3}}, "input_ids"),
    ],
)
def test_a_batch_beyond_the_limit_is_wrong(
    server: Deployment, path: str, body: dict[str, Any], field: str
) -> None:
    response = httpx.post(server.url + path, json=body, headers=HEADERS)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == field
    assert "at most 4" in response.json()["error"]["message"]


def test_places_are_given_back_whatever_happens(server: Deployment) -> None:
    members = server.members
    with httpx.Client(base_url=server.url, headers=HEADERS, timeout=20) as client:

        def ask(**body: Any) -> int:
            """The status; asked again until the places of the last client are free."""
            while (answer := client.post("/v1/completions", json=body)).status_code == 429:
                time.sleep(0.01)
            return answer.status_code

        for _ in range(3):
            members.clear()
            leave(server, "/generate", {"text": ["STOP"] * 4}, requests=4, key=KEY)
            assert members.wait_for(lambda: len(members.aborted) == 4)
            assert ask(prompt=["FAIL", "a", "a"]) == 503
            assert ask(prompt="a", max_tokens=10**6) == 400
            assert ask(prompt=["a", [1]], n=2) == 400
            assert ask(prompt=["a"] * 4, max_tokens=2) == 200
            long = {"text": ["a" * 300] * 4, "stream": True}
            with client.stream("POST", "/generate", json=long) as stream:
                assert stream.status_code == 200
                next(stream.iter_lines())
            assert ask(prompt=["a"] * 4, max_tokens=2) == 200


def test_the_official_client_knows_these_errors(server: Deployment) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            client.models.list()
        assert caught.value.code == "invalid_api_key"
