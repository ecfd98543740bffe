"""Asks a deployment's front end over its UNIX socket, and raises our errors for its answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import orjson

from tokenrouter.errors import RequestError
from tokenrouter.offline import answers
from tokenrouter.offline.handle import ServerProcess

HOST = "http://tokenrouter"
"""HTTP wants one; the socket decides where requests go."""
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=16)


class Client:
    """Of one front end. Threads may share it, and any event loop may use it.

    There is no limit on time: a process that hangs is killed by its supervisor, and that ends
    the connection.
    """

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        transport = httpx.HTTPTransport(uds=process.socket, verify=False, limits=LIMITS)
        self._client = httpx.Client(transport=transport, base_url=HOST, timeout=None)

    def close(self) -> None:
        """End its connections, and the requests on them."""
        self._client.close()

    def ask(self, body: Mapping[str, Any]) -> Any:
        """The whole answer to a request."""
        with self._connected():
            response = self._client.send(_generate(body))
        return answers.content(response.status_code, response.content)

    def stream(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The answers to a request, one after the other."""
        with self._connected():
            response = self._client.send(_generate(body), stream=True)
            try:
                if response.is_error:
                    answers.content(response.status_code, response.read())
                for line in response.iter_lines():
                    yield from answers.events(line)
            finally:
                response.close()

    async def ask_async(self, body: Mapping[str, Any]) -> Any:
        """As `ask`."""
        with self._connected():
            async with self._async_client() as client:
                response = await client.send(_generate(body))
        return answers.content(response.status_code, response.content)

    async def stream_async(self, body: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """As `stream`."""
        with self._connected():
            async with self._async_client() as client:
                response = await client.send(_generate(body), stream=True)
                if response.is_error:
                    answers.content(response.status_code, await response.aread())
                async for line in response.aiter_lines():
                    for answer in answers.events(line):
                        yield answer

    def server_info(self) -> dict[str, Any]:
        """What ``/get_server_info`` tells."""
        with self._connected():
            response = self._client.get("/get_server_info")
        info: dict[str, Any] = answers.content(response.status_code, response.content)
        return info

    @contextmanager
    def _connected(self) -> Iterator[None]:
        self._process.check()
        try:
            yield
        except httpx.TransportError as error:
            raise self._process.lost() from error

    def _async_client(self) -> httpx.AsyncClient:
        # One a request: connections belong to the event loop that made them.
        transport = httpx.AsyncHTTPTransport(uds=self._process.socket, verify=False)
        return httpx.AsyncClient(transport=transport, base_url=HOST, timeout=None)


def _generate(body: Mapping[str, Any]) -> httpx.Request:
    try:
        content = orjson.dumps(body)
    except orjson.JSONEncodeError as error:
        raise RequestError(f"the request cannot be written as JSON: {error}") from error
    return httpx.Request(
        "POST",
        f"{HOST}/generate",
        content=content,
        headers={"Content-Type": "application/json"},
        extensions={"timeout": httpx.Timeout(None).as_dict()},
    )
