"""Asks a deployment over HTTP, and turns what goes wrong into one line with its remedy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from tokenrouter.calibration import facts
from tokenrouter.calibration.prompts import Prompt
from tokenrouter.errors import (
    AuthenticationError,
    ConfigError,
    MeasurementError,
    RequestError,
    TokenRouterError,
)
from tokenrouter.offline import answers

SOCKET_HOST = "http://tokenrouter"
CONNECT_S = 10.0
INFO_S = 30.0


@dataclass(frozen=True)
class Usage:
    """Output tokens of one answer: all of them, and those the first model did not write."""

    tokens: int
    of_others: int


class Deployment:
    """A running server that routes between at least two models; made by `connected`."""

    def __init__(self, client: httpx.AsyncClient, place: str) -> None:
        self._client, self._place = client, place
        self.facts: facts.Facts

    async def open(self) -> None:
        """Learn the facts.

        Raises:
            ConfigError: nothing there can be calibrated, or a key is wanted.
            MeasurementError: nobody answers.
        """
        info = await self.info()
        try:
            self.facts = facts.read(info)
        except (KeyError, TypeError) as error:
            raise self._foreign("/get_server_info") from error
        if len(self.facts.members) < 2:
            raise ConfigError(
                f"{self._place} serves one model, so nothing is routed; calibrate a deployment of "
                "two or more"
            )

    async def info(self) -> Any:
        """What ``/get_server_info`` tells."""
        return await self._content("GET", "/get_server_info", limit_s=INFO_S)

    async def ask(
        self, prompt: Prompt, max_tokens: int, *, threshold: float | None = None, seed: int = 0
    ) -> Usage:
        """Have one prompt answered greedily, by ``threshold`` or the router threshold in force.

        Raises:
            MeasurementError: it was not answered.
        """
        name = self.facts.name if threshold is None else f"{self.facts.name}@{threshold!r}"
        body = {
            **prompt.content,
            "model": name,
            "max_tokens": max_tokens,
            "temperature": 0,
            "routing": {"seed": seed},
        }
        answer = await self._content("POST", prompt.endpoint, orjson.dumps(body))
        tokens: dict[str, int] = answer["routing"]["tokens"]
        total = sum(tokens.values())
        return Usage(total, total - tokens.get(self.facts.members[0], 0))

    async def _content(
        self, method: str, path: str, body: bytes | None = None, limit_s: float | None = None
    ) -> Any:
        headers = {} if body is None else {"Content-Type": "application/json"}
        limits = httpx.Timeout(limit_s, connect=CONNECT_S)
        try:
            response = await self._client.request(
                method, path, content=body, headers=headers, timeout=limits
            )
        except (httpx.TransportError, httpx.InvalidURL, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise MeasurementError(
                f"no answer from {self._place} ({reason}); start it with `tokenrouter serve`, or "
                "name --config FILE"
            ) from error
        try:
            return answers.content(response.status_code, response.content)
        except AuthenticationError as error:
            raise ConfigError(
                f"--api-key: {self._place} refuses it ({error}); give its own, or set "
                "TOKENROUTER_API_KEY"
            ) from error
        except RequestError as error:
            raise MeasurementError(
                f"{self._place} refuses a request: {error}; change --prompts or --max-tokens"
            ) from error
        except TokenRouterError as error:
            raise MeasurementError(f"{self._place} failed: {error}; its log says more") from error
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise self._foreign(path) from error

    def _foreign(self, path: str) -> MeasurementError:
        return MeasurementError(
            f"{self._place} answers {path}, but not as TokenRouter does; name the address that "
            "`tokenrouter serve` told"
        )


@asynccontextmanager
async def connected(
    url: str = SOCKET_HOST,
    api_key: str | None = None,
    *,
    socket: str | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncIterator[Deployment]:
    """The deployment at ``url``, or behind a UNIX ``socket``.

    Raises:
        ConfigError: it cannot be calibrated.
        MeasurementError: it does not answer.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        url = f"http://{url}"
    elif scheme not in ("http", "https"):
        raise ConfigError(f"URL: {url} is not of HTTP; give http://HOST:PORT, or https://HOST")
    if socket is not None:
        transport = httpx.AsyncHTTPTransport(uds=socket, verify=False)
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    limits = httpx.Limits(max_connections=None)
    place = "the deployment" if socket else url
    async with httpx.AsyncClient(
        base_url=url, headers=headers, transport=transport, limits=limits
    ) as client:
        deployment = Deployment(client, place)
        await deployment.open()
        yield deployment


@contextmanager
def first_failure() -> Iterator[None]:
    """Raise the first failure of a group of tasks by itself.

    Raises:
        TokenRouterError: of a task.
    """
    try:
        yield
    except* TokenRouterError as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
