"""Answering a client that may leave at any moment, in one piece or as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tokenrouter.errors import TokenRouterError
from tokenrouter.frontend.http_errors import error_event

DONE = b"data: [DONE]\n\n"
Answer = TypeVar("Answer")


class ClientGoneError(TokenRouterError):
    """The client closed the connection; nobody reads this."""

    status = 499


async def while_connected(request: Request, work: Awaitable[Answer]) -> Answer:
    """The result of ``work``, which is cancelled as soon as the client leaves.

    Raises:
        ClientGoneError: it left.
    """
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError("the client closed the connection")
    finally:
        for each in (task, leaving):
            each.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)


class EventStream(StreamingResponse):
    """Server-sent events of an answer whose first event is there already.

    An error on the way becomes the last event. ``end`` is called however the stream ends.
    """

    def __init__(self, first: bytes, rest: AsyncIterator[bytes], end: Callable[[], None]) -> None:
        super().__init__(_events(first, rest), media_type="text/event-stream")
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; returns early if the client leaves."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


async def _events(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    try:
        async for event in rest:
            yield event
    except Exception as error:  # noqa: BLE001 - the edge of the process, after the status line
        yield error_event(error)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
