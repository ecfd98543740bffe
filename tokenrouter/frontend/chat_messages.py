"""Messages of a chat: SGLang's models, chosen by role, so that complaints are about one of them.

The type of ``messages`` in `protocol`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Tag

from tokenrouter.frontend.bodies import check_lists, wrong
from tokenrouter.frontend.quoting import quoted
from tokenrouter.subserver.sglang_compat.serving import (
    ChatCompletionMessageGenericParam,
    ChatCompletionMessageUserParam,
)

MOST_PARTS = 1024
"""Of the content of a message, or calls in it."""
USER, OTHERS = "user", ("system", "assistant", "tool")


def _check_role(message: Any) -> Any:
    if not isinstance(message, dict):
        raise ValueError("must be a JSON object with role and content")
    role = message.get("role")
    if role != USER and not (isinstance(role, str) and role.lower() in OTHERS):
        got = f", got {quoted(role)}" if "role" in message else ""
        raise wrong(f"must be one of {', '.join((*OTHERS, USER))}{got}", "role")
    return check_lists(message, MOST_PARTS)


def _model_of(message: Any) -> str:
    role = message["role"] if isinstance(message, dict) else message.role
    return "User" if role == USER else "Other"


# Tags have a capital: `http_errors` would take them for fields.
ChatMessage = Annotated[
    Annotated[ChatCompletionMessageUserParam, Tag("User")]
    | Annotated[ChatCompletionMessageGenericParam, Tag("Other")],
    Discriminator(_model_of),
    BeforeValidator(_check_role),
]
"""One message."""
