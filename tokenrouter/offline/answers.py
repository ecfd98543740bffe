"""What a front end's answer holds: content, or one of our errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from tokenrouter.errors import CODES, RequestError, TokenRouterError

BY_CODE = {code: kind for kind, code in CODES}

_DATA = "data: "
_DONE = "[DONE]"


def content(status: int, data: bytes) -> Any:
    """The decoded body of a response.

    Raises:
        TokenRouterError: the one that the body tells of.
    """
    answer = orjson.loads(data)
    if status >= 400:
        raise error(answer["error"])
    return answer


def events(line: str) -> Iterator[dict[str, Any]]:
    """The answer in one line of an event stream, if there is one.

    Raises:
        TokenRouterError: the one that the event tells of.
    """
    data = line.removeprefix(_DATA)
    if data in (line, _DONE):  # no data, or the end
        return
    answer: dict[str, Any] = orjson.loads(data)
    if "error" in answer:
        raise error(answer["error"])
    yield answer


def error(body: dict[str, Any]) -> TokenRouterError:
    """The error that became OpenAI's ``body``."""
    kind = BY_CODE.get(body.get("code") or "")
    if kind is None and body.get("type") == "invalid_request_error":
        kind = RequestError
    if kind is not None and issubclass(kind, RequestError):
        return kind(body["message"], body.get("param"))
    return (kind or TokenRouterError)(body["message"])
