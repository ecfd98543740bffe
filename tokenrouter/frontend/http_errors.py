"""Errors as OpenAI's clients expect them: ``{"error": {message, type, param, code}}``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from tokenrouter.errors import CODES, TokenRouterError, field_of
from tokenrouter.frontend.quoting import LONGEST_MESSAGE, cut, quoted
from tokenrouter.frontend.record import note_failure
from tokenrouter.frontend.unserved import reason_against

TYPES = frozenset({"str", "int", "float", "bool", "list", "dict"})
"""What pydantic puts into a location for a type, where it looks like a field."""

UNREADABLE = (ValueError, RecursionError)
"""Of a body: no UTF-8, a number of too many digits, nested too deeply."""

TYPES_OF_JSON = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
}

logger = logging.getLogger(__name__)


def error_body(error: Exception) -> tuple[int, dict[str, Any]]:
    """HTTP status and body for ``error``; one we did not raise is logged, not shown."""
    if not isinstance(error, TokenRouterError):
        logger.error("a request failed", exc_info=error)
        error = TokenRouterError("internal error; the server's log has the details")
    code = next(code for kind, code in CODES if isinstance(error, kind))
    return error.status, shape(error.status, str(error), field_of(error), code)


def error_event(error: Exception) -> bytes:
    """The last event of a stream that fails."""
    return b"data: " + orjson.dumps(error_body(error)[1]) + b"\n\n"


def error_response(error: Exception) -> Response:
    """The response for ``error``, with the headers that its status asks for."""
    status, body = error_body(error)
    headers = {}
    if isinstance(error, TokenRouterError) and error.retry_after_s is not None:
        headers["retry-after"] = str(error.retry_after_s)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return _response(status, body, headers)


def install(app: FastAPI) -> None:
    """Answer every error of ``app`` in this shape."""

    @app.exception_handler(TokenRouterError)
    async def ours(request: Request, error: TokenRouterError) -> Response:
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        message, field = describe(error.errors())
        if error.errors()[0]["type"] != "json_invalid" and not isinstance(error.body, dict):
            message = _no_object(request, error.body)
        return _response(400, shape(400, message, field, "invalid_value"))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        message, code = error.detail, None
        if isinstance(error.__cause__, UNREADABLE):
            message, code = _unreadable(request, error.__cause__), "invalid_value"
        elif error.status_code == 404:
            message = reason_against(request.url.path)
        elif error.status_code == 405:
            message = f"{request.url.path} does not take {request.method}"
        body = shape(error.status_code, message, code=code)
        return _response(error.status_code, body, error.headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return error_response(error)


def describe(errors: Any) -> tuple[str, str | None]:
    """Message and field of the first field that pydantic complains about.

    A field with several legal types gives one complaint per type; all are told.
    """
    if errors[0].get("type") == "json_invalid":
        return f"the body is not valid JSON: {errors[0]['ctx']['error']}", None
    fields = [_field(error["loc"]) for error in errors]
    first = fields[0]
    reasons = [_reason(e) for e, field in zip(errors, fields, strict=True) if field == first]
    message = ", or: ".join(dict.fromkeys(reasons))
    return (f"{first}: {message}" if first else message), first or None


def _reason(error: Mapping[str, Any]) -> str:
    # Pydantic puts words of its own before those of a validator.
    return str(error["ctx"]["error"] if error.get("type") == "value_error" else error["msg"])


def _unreadable(request: Request, cause: BaseException) -> str:
    """Why a body is no JSON that can be read, and the remedy."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        return f"the body is encoded as {quoted(encoding)}; send it without Content-Encoding"
    why = str(cause).partition(";")[0]  # (what follows is advice to a Python program)
    if isinstance(cause, RecursionError):
        why += "; nest it less deeply"
    elif isinstance(cause, UnicodeError):
        why += "; send it as UTF-8"
    return f"the body is not valid JSON: {why}"


def _no_object(request: Request, body: Any) -> str:
    """What is wrong with a whole body: FastAPI leaves one that is not sent as JSON in bytes."""
    if isinstance(body, bytes):
        sent_as = quoted(request.headers.get("content-type"))
        return f"send the body with the header 'Content-Type: application/json', not {sent_as}"
    if body is None:
        return "the body is empty; send a JSON object"
    return f"the body must be a JSON object, not {TYPES_OF_JSON[type(body)]}"


def _field(location: tuple[str | int, ...]) -> str:
    """The field at ``location``, without the types that pydantic tried on the way."""
    path = ""
    for part in location[1:]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part.islower() and part not in TYPES:
            path += f".{cut(part)}" if path else cut(part)
    return path


def shape(
    status: int, message: str, field: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """OpenAI's error body."""
    message, field = cut(message, LONGEST_MESSAGE), None if field is None else cut(field)
    note_failure(message, field)
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": field, "code": code}}


def _response(
    status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None
) -> Response:
    return Response(orjson.dumps(body), status, headers, "application/json")
