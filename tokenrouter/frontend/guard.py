"""Who may ask, and how much: the API key, and the size of a body.

ASGI middleware in front of the application: a request that is refused here costs nothing.
"""

from __future__ import annotations

import secrets

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenrouter.errors import AuthenticationError
from tokenrouter.frontend.http_errors import error_response

OPEN_PATHS = ("/health", "/metrics")
"""What begins so needs no key, as in SGLang."""


class ApiKey:
    """Lets requests pass that carry ``key`` as a bearer token."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = b"bearer " + key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or answer 401."""
        if scope["type"] != "http" or self._passes(scope):
            await self._app(scope, receive, send)
            return
        error = AuthenticationError(
            "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'"
        )
        await error_response(error)(scope, receive, send)

    def _passes(self, scope: Scope) -> bool:
        if scope["method"] == "OPTIONS" or scope["path"].startswith(OPEN_PATHS):
            return True
        given = _header(scope, b"authorization")
        scheme, _, token = given.partition(b" ")
        # In constant time: how long it takes must not tell how much was right.
        return secrets.compare_digest(scheme.lower() + b" " + token.strip(), self._expected)


class BodyLimit:
    """Refuses bodies of more than ``limit`` bytes without reading the rest of them."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request; status 413 if its body is, or turns out to be, too large."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read = 0
        announced = _header(scope, b"content-length")
        if announced.isdigit():
            read = int(announced)

        async def limited() -> Message:
            nonlocal read
            if read > self._limit:
                raise self._too_large()
            message = await receive()
            if not announced:
                read += len(message.get("body", b""))
                if read > self._limit:
                    raise self._too_large()
            return message

        await self._app(scope, limited, send)

    def _too_large(self) -> HTTPException:
        return HTTPException(
            413,
            f"the body has more than {self._limit} bytes; send less, or start the server with a "
            "larger max_body_bytes",
            {"connection": "close"},
        )


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")
