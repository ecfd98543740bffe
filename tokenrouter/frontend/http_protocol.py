"""uvicorn's HTTP connection, with bounds on what a client may send before there is a request.

uvicorn would gather a request's target and header fields without end, and keep a connection
that never says anything. Bodies are bounded later, in `guard.py`.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tokenrouter.frontend.http_errors import shape

MAX_HEAD_BYTES = 64 * 1024
"""Of request line and header fields together (and of the fields after a chunked body)."""
HEAD_TOO_LONG = f"request line and headers have more than {MAX_HEAD_BYTES} bytes"
HEAD_TIMEOUT_S = 60.0
"""From the connection to the end of the first request's header fields."""


class BoundedHttp(HttpToolsProtocol):
    """For `uvicorn.Config`; one a connection."""

    _ungathered = 0
    """Bytes since the last that had a place to go: a body, or an answer's request."""
    _head = 0
    """Bytes of this request's target and fields, however few reads they came in."""
    _refusal: tuple[int, str] | None = None
    """Status and message that are to follow the answers under way; what comes in is dropped."""
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        self._gathered()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; refuse a request whose head does not end."""
        if self._refusal is not None or self.transport.is_closing():
            return
        self._ungathered += len(data)
        super().data_received(data)
        if self._ungathered > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(431, HEAD_TOO_LONG)

    def on_message_begin(self) -> None:
        """A request's first byte."""
        self._head = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of its target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its fields, before or after its body."""
        self._count(len(name) + len(value) + len(": \r\n"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A request begins."""
        self._gathered()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """More of its body."""
        self._gathered()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Its end."""
        self._gathered()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is out; after the last, what came behind its request is refused."""
        last = not self.pipeline
        super().on_response_complete()
        if last and self._refusal is not None:
            self._hang_up(*self._refusal)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or what a callback above refused."""
        if self._head > MAX_HEAD_BYTES:
            self._refuse(431, HEAD_TOO_LONG)
        else:
            self._refuse(400, msg)

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD_BYTES:
            raise ValueError(HEAD_TOO_LONG)  # the parser stops; uvicorn calls send_400_response

    def _gathered(self) -> None:
        self._ungathered = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: int, message: str) -> None:
        """Answer and hang up, once every request that came whole has its own answer."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self._hang_up(status, message)
        elif not cycle.more_body:
            self._refusal = status, message
        elif self.pipeline:  # its body is what is wrong, and it waits behind another
            self.pipeline.popleft()
            self._refusal = status, message
        elif cycle.response_started:  # answered without its body: that answer is the last
            self._refusal = status, message
            cycle.keep_alive = False
        else:
            cycle.disconnected = True
            self._hang_up(status, message)

    def _hang_up(self, status: int, message: str) -> None:
        if self.transport.is_closing():
            return
        body = orjson.dumps(shape(status, message, None, None))
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
