"""Around the whole application: one log line and one count for each HTTP request.

Endpoints say nothing: an `Exchange` and an error find the request they belong to by
themselves. Probes and scrapes are counted, and not logged.
"""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenrouter.config import Config
from tokenrouter.frontend.record import CURRENT, Record
from tokenrouter.frontend.summary import summarise
from tokenrouter.frontend.traffic import Traffic
from tokenrouter.processes.logs import pairs, printable, with_fields

QUIET = frozenset({"/health", "/health_generate", "/metrics", "/ping"})
UNKNOWN = "other"
"""The endpoint of requests for which there is no route."""
METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"})

logger = logging.getLogger(__name__)


class Access:
    """ASGI middleware; the outermost, so that it sees every answer."""

    def __init__(self, app: ASGIApp, traffic: Traffic, config: Config) -> None:
        self._app, self._traffic, self._config = app, traffic, config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, and note how it went."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = Record(time.monotonic())
        CURRENT.set(record)

        async def watching_receive() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not record.complete:
                record.gone = True
            return message

        async def watching_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                record.complete = True

        try:
            await self._app(scope, watching_receive, watching_send)
        except Exception as error:
            # The server answers it, or closes the connection of an answer that has begun.
            record.status = record.status or 500
            record.error = record.error or type(error).__name__
            raise
        finally:
            self._note(scope, record)

    def _note(self, scope: Scope, record: Record) -> None:
        path = _endpoint(scope)
        method = scope["method"] if scope["method"] in METHODS else UNKNOWN
        self._traffic.http[method, path, record.status] += 1
        if record.gone:
            self._traffic.gone[path] += 1
        if scope["path"] not in QUIET and logger.isEnabledFor(logging.INFO):
            self._log(scope["method"], scope["path"], record)

    def _log(self, method: str, path: str, record: Record) -> None:
        shown = summarise(record, self._config.names, self._traffic.name_of)
        shown["request_ms"] = round(1e3 * (time.monotonic() - record.began), 3)
        fields = {"method": method, "path": path, "status": record.status, **shown}
        logger.info(
            "%s %s %d%s",
            method,
            printable(path),
            record.status,
            pairs(shown),
            extra=with_fields(fields),
        )


def _endpoint(scope: Scope) -> str:
    """The path of the route, also of a request that was refused before it was routed."""
    if route := scope.get("route"):
        path: str = route.path
        return path
    paths = {getattr(route, "path", UNKNOWN) for route in scope["app"].routes}
    return scope["path"] if scope["path"] in paths else UNKNOWN
