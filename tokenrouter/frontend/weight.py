"""How much work the JSON of a body is, told from its bytes: parsing it holds the event loop.

`app.py` makes its routes of `bounded_route`, which look here before anything is parsed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

OBJECT_WEIGHT = 100
"""Values that are read in the time of an object: it may be validated as a message or a tool."""
KEY_WEIGHT = 10
ARRAY_WEIGHT = 20


def weight(body: bytes, enough: int) -> int:
    """JSON values in ``body``; one that is no JSON may be given more than are read of it.

    Text is not looked into unless there seem to be more than ``enough``.
    """
    most = _count(body)
    if most <= enough or b"\0" in body:  # (UTF-16, whose escapes are two bytes each)
        return most
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"")
    strings = bare.count(b'"') // 2
    if strings > enough:
        return strings
    return _count(b"".join(bare.split(b'"')[::2]))


def bounded_route(limit: int) -> type[APIRoute]:
    """Routes that answer 413 to a body of more than ``limit`` values, before it is parsed."""

    class BoundedRequest(Request):
        async def json(self) -> Any:
            if weight(await self.body(), limit) > limit:
                raise HTTPException(
                    413,
                    f"the body has more than {limit} JSON values (an object counts as "
                    f"{OBJECT_WEIGHT}, a key as {KEY_WEIGHT}, an array as {ARRAY_WEIGHT}); send "
                    "several requests, or start the server with a larger max_body_values",
                )
            return await super().json()

    class BoundedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
            handle = super().get_route_handler()

            async def bounded(request: Request) -> Response:
                return await handle(BoundedRequest(request.scope, request.receive))

            return bounded

    return BoundedRoute


def _count(body: bytes) -> int:
    return (
        body.count(b",")
        + body.count(b":") * KEY_WEIGHT
        + body.count(b"[") * ARRAY_WEIGHT
        + body.count(b"{") * OBJECT_WEIGHT
    )
