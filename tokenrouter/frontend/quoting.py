"""What a client sent, as an error may quote it: messages and logs stay short whatever comes."""

from __future__ import annotations

LONGEST_QUOTE = 200
"""Characters of one value."""
LONGEST_MESSAGE = 4096
"""Characters of a whole message, which may list every model."""


def quoted(value: object) -> str:
    """``repr`` of ``value``, cut where it is long."""
    return cut(repr(value[: LONGEST_QUOTE + 1] if isinstance(value, str) else value))


def cut(text: str, most: int = LONGEST_QUOTE) -> str:
    """``text``, with dots instead of what is beyond ``most`` characters."""
    return text if len(text) <= most else f"{text[:most]}..."
