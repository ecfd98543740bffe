"""What is known of one HTTP request, for its log line.

`access.py` makes one for each; `exchange.py` and `http_errors.py` find it in the context of
the request that they serve.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenrouter.frontend.exchange import Exchange


@dataclass(slots=True, eq=False)
class Record:
    """One HTTP request, since ``began`` (seconds, monotonic).

    ``status`` is 0 until the answer begins; ``gone``: the client left before it was
    ``complete``. ``error`` and ``field``: the last failure that was told.
    """

    began: float
    status: int = 0
    complete: bool = False
    gone: bool = False
    exchange: Exchange | None = None
    error: str | None = None
    field: str | None = None


CURRENT: ContextVar[Record | None] = ContextVar("current_record", default=None)
"""The request that this task serves."""


def note_exchange(exchange: Exchange) -> None:
    """The current request has been understood."""
    if record := CURRENT.get():
        record.exchange = exchange


def note_failure(message: str, field: str | None) -> None:
    """The current request failed."""
    if record := CURRENT.get():
        record.error, record.field = message, field
