"""How a deployment is asked, and what is said of those that cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from tests.calibration.fakes import KEY, FakeServer
from tokenrouter.calibration.client import Deployment, Usage, connected
from tokenrouter.calibration.prompts import COMPLETIONS, Prompt, question
from tokenrouter.errors import ConfigError, MeasurementError

pytestmark = pytest.mark.timeout(20)


def within(
    server: FakeServer, use: Callable[[Deployment], Awaitable[Any]], key: str | None = None
) -> Any:
    """What ``use`` returns of a connection."""

    async def run() -> Any:
        async with connected("host:1", key, transport=server.transport) as deployment:
            return await use(deployment)

    return asyncio.run(run())


def test_facts_of_a_deployment() -> None:
    async def facts(deployment: Deployment) -> Any:
        return deployment.facts

    found = within(FakeServer(), facts)
    assert (found.name, found.members, found.limits) == ("demo", ("small", "large"), (8, 8))
    assert (found.router_threshold, found.threshold_range) == (0.1, (0.0, float("inf")))
    found = within(FakeServer(router_threshold=None), facts)
    assert found.router_threshold is None


def test_usage_of_an_answer() -> None:
    server = FakeServer(lambda threshold, prompt: 7 if prompt == "p" else 30)

    async def ask(deployment: Deployment) -> list[Usage]:
        return [
            await deployment.ask(Prompt(COMPLETIONS, {"prompt": "p"}), 50),
            await deployment.ask(question("q"), 60, threshold=1e-05, seed=3),
        ]

    assert within(server, ask) == [Usage(100, 7), Usage(100, 30)]
    first, second = server.bodies
    assert (first["model"], first["max_tokens"], first["temperature"]) == ("demo", 50, 0)
    assert (second["model"], second["routing"]) == ("demo@1e-05", {"seed": 3})


def test_a_key_is_sent_and_a_wrong_one_explained() -> None:
    server = FakeServer()
    server.key = KEY

    async def nothing(deployment: Deployment) -> None:
        return None

    within(server, nothing, KEY)
    for wrong in (None, "other"):
        with pytest.raises(ConfigError, match="--api-key: http://host:1 refuses it"):
            within(server, nothing, wrong)


def test_a_single_model_is_not_routed() -> None:
    server = FakeServer()
    del server.info["models"][1]
    with pytest.raises(ConfigError, match="http://host:1 serves one model"):
        within(server, lambda deployment: deployment.info())


@pytest.mark.parametrize(
    ("respond", "complaint"),
    [
        (lambda request: httpx.Response(404, text="<html>"), "but not as TokenRouter does"),
        (lambda request: httpx.Response(200, json={"models": 1}), "but not as TokenRouter does"),
        (
            lambda request: httpx.Response(
                503, json={"error": {"message": "m", "code": "server_stopping"}}
            ),
            "http://host:1 failed: m; its log says more",
        ),
    ],
)
def test_other_servers(respond: Callable[[httpx.Request], httpx.Response], complaint: str) -> None:
    async def connect() -> None:
        async with connected("http://host:1", transport=httpx.MockTransport(respond)):
            pass

    with pytest.raises(MeasurementError, match=complaint):
        asyncio.run(connect())


@pytest.mark.parametrize("url", ["127.0.0.1:9", "http://nowhere.invalid", "http://a b"])
def test_nobody_there(url: str) -> None:
    async def connect() -> None:
        async with connected(url):
            pass

    with pytest.raises((MeasurementError, ConfigError), match="no answer from"):
        asyncio.run(connect())


def test_other_schemes_are_refused() -> None:
    async def connect() -> None:
        async with connected("ftp://x"):
            pass

    with pytest.raises(ConfigError, match="URL: ftp://x is not of HTTP; give http://HOST:PORT"):
        asyncio.run(connect())


def test_a_refused_prompt() -> None:
    with pytest.raises(MeasurementError, match="too long; change --prompts or --max-tokens"):
        within(FakeServer(), lambda deployment: deployment.ask(question("too long"), 5))
