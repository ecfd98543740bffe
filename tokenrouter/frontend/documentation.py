"""The OpenAPI document: every status that an endpoint may answer with, and in what shape."""

from __future__ import annotations

import re
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from tokenrouter.config import Config
from tokenrouter.frontend import names, presets
from tokenrouter.frontend.answers import Error

ERRORS = {
    400: "Something in the request is wrong; the message names the field.",
    401: "The API key is missing or wrong.",
    404: "No such model.",
    409: "Not while requests are being served.",
    413: "The body is too large.",
    429: "The server holds as many requests as it may; try again.",
    503: "A member is being restarted, or the server is stopping; try again.",
}
READS = (401, 503)
ACTS = (400, 401, 409, 413, 503)
GENERATES = (400, 401, 404, 413, 429, 503)
BODIES = ("ChatRequest", "TextRequest", "GenerateBody")
"""The schemas with a ``model``."""
EVENTS: dict[str, Any] = {"text/event-stream": {}}
"""Server-sent events: chunks of the answer, an error if one comes up, and ``[DONE]``.

They have no schema: OpenAPI 3.1 does not say whether it would be of the body or of each event."""


def responses(
    answer: Any, errors: tuple[int, ...], stream: bool = False
) -> dict[int | str, dict[str, Any]]:
    """What FastAPI documents for an endpoint. ``answer``: a model; None for plain text."""
    success: dict[str, Any] = {"description": "As asked."}
    if answer is None:
        success["content"] = {"text/plain": {"schema": {"type": "string"}}}
    else:
        success["model"] = answer
    if stream:
        success["content"] = EVENTS
    described: dict[int | str, dict[str, Any]] = {200: success}
    for status in errors:
        described[status] = {"model": Error, "description": ERRORS[status]}
    return described


def document(app: FastAPI, config: Config) -> None:
    """Have ``app`` describe itself truly.

    FastAPI would add a status that is never sent, and knows no model names.
    """

    def openapi() -> dict[str, Any]:
        if not app.openapi_schema:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            for path in schema["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            for body in BODIES:
                model = schema["components"]["schemas"][body]["properties"]["model"]
                model["pattern"] = _names(config)
            for unused in ("HTTPValidationError", "ValidationError"):
                schema["components"]["schemas"].pop(unused, None)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _names(config: Config) -> str:
    """A regular expression of the names that requests may use."""
    listed = "|".join(re.escape(name) for name in (names.DEFAULT, *names.ids(config)))
    routed = re.escape(config.served_name)
    algorithms = "|".join(map(re.escape, presets.names(config)))
    return f"^({listed}|{routed}(:({algorithms}))?(@[0-9]*[.]?[0-9]+)?)$"
