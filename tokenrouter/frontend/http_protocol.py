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
HEAD_TIMEOUT_S = 60.0
"""From the connection to the end of the first request's header fields."""


class BoundedHttp(HttpToolsProtocol):
    """For `uvicorn.Config`; one a connection."""

    _ungathered = 0
    """Bytes since the last that had a place to go: a body, or an answer's request."""
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
        self._ungathered += len(data)
        super().data_received(data)
        if self._ungathered > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(431, f"request line and headers have more than {MAX_HEAD_BYTES} bytes")

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

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._refuse(400, msg)

    def _gathered(self) -> None:
        self._ungathered = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: int, message: str) -> None:
        """Answer, unless another answer is on its way, and hang up."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            body = orjson.dumps(shape(status, message, None, None))
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nconnection: close\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()
