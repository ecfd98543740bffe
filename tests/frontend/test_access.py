"""One count and one log line for each HTTP request, however it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from tests.frontend.fakes import make_config
from tokenrouter.errors import RequestError
from tokenrouter.frontend import http_errors
from tokenrouter.frontend.access import Access
from tokenrouter.frontend.exchange import Exchange, Live
from tokenrouter.frontend.guard import ApiKey
from tokenrouter.frontend.record import Record
from tokenrouter.frontend.summary import summarise
from tokenrouter.frontend.traffic import Traffic
from tokenrouter.ipc.messages import Route, Sampling

CONFIG = make_config(Path("model"))
ROUTE = Route("entropy", (0, 1), 0)
ALONE = Route("single", (1,), 1)


def build(traffic: Traffic) -> FastAPI:
    app = FastAPI()
    http_errors.install(app)

    @app.get("/fine")
    async def fine() -> Response:
        Exchange(ALONE, "prompt", "max_tokens", "chosen")
        return Response("ok")

    @app.get("/items/{item}")
    async def item(item: str) -> Response:
        raise RequestError(f"item: no {item}", "item")

    @app.get("/broken")
    async def broken() -> Response:
        raise ZeroDivisionError

    @app.get("/health")
    async def health() -> Response:
        return Response("ok")

    @app.get("/stream")
    async def stream() -> Response:
        async def parts() -> AsyncIterator[bytes]:
            while True:
                yield b"part"
                await asyncio.sleep(0.01)

        return StreamingResponse(parts())

    @app.get("/late")
    async def late(request: Request) -> Response:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        raise ZeroDivisionError

    app.add_middleware(Access, traffic, CONFIG)
    return app


def test_a_refusal_before_routing_belongs_to_its_endpoint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = make_config(Path("model"), api_key="secret")
    traffic = Traffic(config)
    app = FastAPI()

    @app.get("/fine")
    async def fine() -> Response:
        return Response("ok")

    app.add_middleware(ApiKey, key="secret")
    app.add_middleware(Access, traffic, config)

    async def ask() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            for path in ("/fine", "/fine/1"):
                assert (await client.get(path)).status_code == 401

    with caplog.at_level(logging.INFO, "tokenrouter.frontend.access"):
        asyncio.run(ask())
    assert traffic.http == {("GET", "/fine", 401): 1, ("GET", "other", 401): 1}
    lines = [r for r in caplog.records if r.name == "tokenrouter.frontend.access"]
    assert all("error=" in line.getMessage() for line in lines)


Get = Callable[[str], tuple[Traffic, list[logging.LogRecord]]]


@pytest.fixture
def get(caplog: pytest.LogCaptureFixture) -> Get:
    def get(path: str) -> tuple[Traffic, list[logging.LogRecord]]:
        traffic = Traffic(CONFIG)

        async def ask() -> None:
            transport = httpx.ASGITransport(build(traffic), raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                await client.get(path)

        with caplog.at_level(logging.INFO, "tokenrouter.frontend.access"):
            asyncio.run(ask())
        return traffic, [r for r in caplog.records if r.name == "tokenrouter.frontend.access"]

    return get


def test_a_request_and_what_it_asked_for(get: Get) -> None:
    traffic, (line,) = get("/fine")
    assert traffic.http == {("GET", "/fine", 200): 1}
    fields: dict[str, Any] = line.fields  # type: ignore[attr-defined]
    assert fields.pop("request_ms") > 0
    assert fields == {
        "method": "GET", "path": "/fine", "status": 200, "id": "chosen", "model": "demo/large",
    }  # fmt: skip
    assert line.getMessage().startswith("GET /fine 200 id=chosen model=demo/large request_ms=")


def test_a_failure_with_its_field(get: Get) -> None:
    traffic, (line,) = get("/items/b%0Ad")
    assert traffic.http == {("GET", "/items/{item}", 400): 1}
    assert line.fields["error"] == "item: no b\nd"  # type: ignore[attr-defined]
    assert line.fields["field"] == "item"  # type: ignore[attr-defined]
    assert "\n" not in line.getMessage()
    assert 'error="item: no b\\nd" field=item' in line.getMessage()


def test_an_error_of_ours(get: Get) -> None:
    traffic, (line,) = get("/broken")
    assert traffic.http == {("GET", "/broken", 500): 1}
    assert "error=ZeroDivisionError" in line.getMessage()


def test_no_such_route(get: Get) -> None:
    traffic, (line,) = get("/nothing/here")
    assert traffic.http == {("GET", "other", 404): 1}
    assert line.getMessage().startswith("GET /nothing/here 404 ")


def test_probes_are_counted_in_silence(get: Get) -> None:
    traffic, lines = get("/health")
    assert traffic.http == {("GET", "/health", 200): 1}
    assert lines == []


def test_nothing_is_put_together_for_a_line_that_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unwanted(*args: object) -> dict[str, Any]:
        raise AssertionError("summarised")

    monkeypatch.setattr("tokenrouter.frontend.access.summarise", unwanted)
    traffic = Traffic(CONFIG)

    async def ask() -> None:
        transport = httpx.ASGITransport(build(traffic))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            assert (await client.get("/fine")).status_code == 200

    logger = logging.getLogger("tokenrouter.frontend.access")
    monkeypatch.setattr(logger, "level", logging.WARNING)
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    asyncio.run(ask())
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    assert traffic.http == {("GET", "/fine", 200): 1}


@pytest.mark.parametrize(("path", "status"), [("/stream", 200), ("/late", 500)])
def test_a_client_that_leaves(path: str, status: int, caplog: pytest.LogCaptureFixture) -> None:
    traffic = Traffic(CONFIG)
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        gone.set()

    async def ask() -> None:
        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": [], "asgi": {"version": "3.0"}, "http_version": "1.1",
            "scheme": "http", "server": ("test", 80), "client": ("test", 1), "root_path": "",
        }  # fmt: skip
        asyncio.get_running_loop().call_later(0.05, gone.set)
        await asyncio.wait_for(build(traffic)(scope, receive, send), 5)

    with caplog.at_level(logging.INFO, "tokenrouter.frontend.access"):
        try:
            asyncio.run(ask())
        except ZeroDivisionError:
            assert status == 500
    assert traffic.gone == {path: 1}
    assert traffic.http == {("GET", path, status): 1}
    lines = [r for r in caplog.records if r.name == "tokenrouter.frontend.access"]
    assert "client_gone=True" in lines[0].getMessage()


def live(exchange: Exchange, **changes: Any) -> Live:
    found = Live(exchange, "rid", [1, 2, 3], Sampling(9), exchange.route, True)
    exchange.lives.append(found)
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def test_the_times_of_several_choices() -> None:
    traffic = Traffic(CONFIG)
    exchange = Exchange(ROUTE, "prompt", "max_tokens", None, created=10.0)
    exchange.rids.append("made-up")
    live(exchange, internal=True, member_tokens=[9, 9], tokens=[1], first_token=10.01)
    common = {"finish": {"type": "stop"}, "sent": 10.1, "hand_overs": 2}
    live(
        exchange, tokens=[1, 2, 3], member_tokens=[2, 1], started=10.2, first_token=10.5,
        last_token=10.9, ended=11.0, **common,
    )  # fmt: skip
    second = live(
        exchange, tokens=[1, 2], member_tokens=[0, 2], started=10.4, first_token=10.6,
        last_token=10.8, ended=10.9, **common,
    )  # fmt: skip
    second.route = Route("entropy", (0, 1), 0, sample=1)
    record = Record(time.monotonic(), exchange=exchange)
    assert summarise(record, CONFIG.names, traffic.name_of) == {
        "id": "made-up", "model": "demo", "finish": "stop", "choices": 2, "prompt_tokens": 3,
        "output_tokens": {"small": 2, "large": 3}, "hand_overs": 4, "queue_ms": 300.0,
        "ttft_ms": 500.0, "itl_ms": 200.0, "e2e_ms": 1000.0,
    }  # fmt: skip


def test_a_request_that_ended_in_the_queue_has_no_times_it_did_not_reach() -> None:
    exchange = Exchange(ROUTE, "prompt", "max_tokens", ["first", "second"], created=10.0)
    live(exchange, finish={"type": "abort", "status_code": 503}, ended=10.25, uid=77)
    fields = summarise(Record(1.0, gone=True, exchange=exchange), CONFIG.names, lambda r: "demo")
    assert fields == {
        "id": "first", "model": "demo", "uid": 77, "finish": "error_503", "prompt_tokens": 3,
        "output_tokens": {"small": 0, "large": 0}, "hand_overs": 0, "e2e_ms": 250.0,
        "client_gone": True,
    }  # fmt: skip
    assert json.dumps(fields)


def test_a_long_id_is_cut() -> None:
    exchange = Exchange(ROUTE, "prompt", "max_tokens", "x" * 100_000)
    fields = summarise(Record(1.0, error="y" * 10**6, exchange=exchange), (), lambda r: "demo")
    assert len(fields["id"]) == 128
    assert len(fields["error"]) == 1000
