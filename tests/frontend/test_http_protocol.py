"""What a client may send before there is a request."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from typing import Any

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.frontend.fakes import Deployment, reply_text
from tokenrouter.frontend import http_protocol
from tokenrouter.frontend.http_protocol import MAX_HEAD_BYTES, BoundedHttp


def exchange(server: Deployment, *parts: bytes) -> bytes:
    """What comes back until the server hangs up; what it does not take is not sent."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=10) as link:
        try:
            for part in parts:
                link.sendall(part)
            while data := link.recv(65536):
                answer += data
        except (ConnectionResetError, BrokenPipeError):
            pass  # with the rest of ours unread
    return answer


@pytest.mark.parametrize(
    "parts",
    [
        [b"GET /", *[b"a" * 65536] * 20],
        [b"GET /health HTTP/1.1\r\nx: ", *[b"a" * 65536] * 20],
        [b"GET /health HTTP/1.1\r\n", *[b"x: " + b"a" * 1000 + b"\r\n"] * 1000],
        [
            b"POST /generate HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
            *[b"x: " + b"a" * 1000 + b"\r\n"] * 1000,
        ],
    ],
    ids=["target", "value", "fields", "trailer"],
)
def test_a_head_without_end_is_refused(server: Deployment, parts: list[bytes]) -> None:
    sent = len(b"".join(parts))
    begun = time.monotonic()
    answer = exchange(server, *parts)
    assert time.monotonic() - begun < 5
    assert sent > MAX_HEAD_BYTES
    # The server may hang up on what it has not read, and then the answer can be lost.
    if answer and b" 431 " in answer:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"application/json" in head
        assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_a_head_that_just_fits_and_a_long_body_are_served(server: Deployment) -> None:
    headers = {f"x-{i}": "a" * 1000 for i in range(60)}
    body = {"text": "abc", "sampling_params": {"max_new_tokens": 400}, "rid": "a" * 200}
    padded = json.dumps(body).encode() + b" " * (4 * MAX_HEAD_BYTES)
    headers["content-type"] = "application/json"
    answer = httpx.post(f"{server.url}/generate", content=padded, headers=headers, timeout=20)
    assert answer.json()["text"] == reply_text(b"abc")


def test_what_is_no_http_is_answered_in_json(server: Deployment) -> None:
    head, _, body = exchange(server, b"\x16\x03\x01 hello\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


def post(body: bytes, *fields: bytes) -> bytes:
    """A request whose body's length is stated right, unless `fields` say how it comes."""
    lines = fields or (b"content-length: %d" % len(body),)
    head = [b"POST /generate HTTP/1.1", b"host: x", b"content-type: application/json", *lines]
    return b"\r\n".join([*head, b"", body])


ABC = b'{"text": "abc", "sampling_params": {"max_new_tokens": 400}}'


@pytest.mark.parametrize("times", [1, 3])
def test_requests_before_garbage_are_answered_first(server: Deployment, times: int) -> None:
    answer = exchange(server, post(ABC) * times + b"GARBAGE\r\n\r\n")
    statuses = re.findall(rb"HTTP/1.1 (\d+)", answer)
    assert statuses == [b"200"] * times + [b"400"]
    assert answer.count(reply_text(b"abc").encode()) == times


def test_garbage_while_an_answer_is_under_way_is_refused_after_it(server: Deployment) -> None:
    answer = exchange(server, post(ABC), b"GARBAGE\r\n\r\n", b"more", b"and more")
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"400"]


@pytest.mark.parametrize(
    ("request_", "statuses"),
    [
        (post(b"zz\r\n" + ABC, b"transfer-encoding: chunked"), [b"400"]),
        (post(ABC, b"content-length: 9"), [b"400", b"400"]),
        (post(ABC) + post(b"zz\r\n", b"transfer-encoding: chunked"), [b"200", b"400"]),
        (post(ABC, b"content-length: nine"), [b"400"]),
    ],
    ids=["chunk size", "short length", "chunk size behind another", "length"],
)
def test_a_broken_body_is_answered(
    server: Deployment, request_: bytes, statuses: list[bytes]
) -> None:
    assert re.findall(rb"HTTP/1.1 (\d+)", exchange(server, request_)) == statuses


@pytest.mark.parametrize(("size", "status"), [(60_000, b"200"), (70_000, b"431")])
@pytest.mark.parametrize("place", [b"x: %s", b"transfer-encoding: chunked\r\n\r\n0\r\nx: %s"])
def test_a_long_head_in_one_piece_is_refused(
    server: Deployment, size: int, status: bytes, place: bytes
) -> None:
    fields = place % (b"a" * size)
    sent = b"GET /health HTTP/1.1\r\nhost: x\r\n" + fields + b"\r\n\r\n"
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as link:
        link.sendall(sent)
        assert link.recv(65536).split()[1] == status
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_a_client_that_says_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT_S", 0.05)

    async def play() -> None:
        config = uvicorn.Config(app=lambda: None, log_config=None)
        config.load()
        loop = asyncio.get_running_loop()
        state: Any = ServerState()
        server = await loop.create_server(
            lambda: BoundedHttp(config=config, server_state=state, app_state={}), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()

    asyncio.run(play())
