"""One answered HTTP request in a few fields, for its log line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tokenrouter.frontend.exchange import Exchange, Live
from tokenrouter.frontend.record import Record
from tokenrouter.frontend.traffic import outcome_of
from tokenrouter.ipc.messages import Route

MAX_ID_LENGTH = 128
"""Characters of a request id that a line shows: clients choose them."""
MAX_ERROR_LENGTH = 1000


def summarise(
    record: Record, names: Sequence[str], name_of: Callable[[Route], str]
) -> dict[str, Any]:
    """What was asked, what came of it, and how long it took (milliseconds).

    ``uid``: by which members call the request in their logs; of several choices, the first.
    Of several choices, tokens are summed, ``queue_ms`` is the longest, ``ttft_ms`` the
    shortest, ``itl_ms`` the mean over tokens. A time that was not reached is left out.
    """
    fields: dict[str, Any] = {}
    if record.exchange is not None:
        fields |= _exchange(record.exchange, names, name_of)
    if record.error is not None:
        fields["error"] = record.error[:MAX_ERROR_LENGTH]
    if record.field is not None:
        fields["field"] = record.field[:MAX_ID_LENGTH]
    if record.gone:
        fields["client_gone"] = True
    return fields


def _exchange(
    exchange: Exchange, names: Sequence[str], name_of: Callable[[Route], str]
) -> dict[str, Any]:
    lives = [live for live in exchange.lives if not live.internal]
    fields: dict[str, Any] = {"id": _id(exchange), "model": name_of(exchange.route)}
    if not lives:
        return fields
    if uid := next((live.uid for live in lives if live.uid is not None), None):
        fields["uid"] = uid
    fields["finish"] = ",".join(dict.fromkeys(map(outcome_of, lives)))
    if len(lives) > 1:
        fields["choices"] = len(lives)
    fields["prompt_tokens"] = sum(len(live.prompt) for live in lives if live.route.sample == 0)
    fields["output_tokens"] = {
        names[member]: sum(live.member_tokens[member] for live in lives if live.member_tokens)
        for member in exchange.route.members
    }
    fields["hand_overs"] = sum(live.hand_overs for live in lives)
    return fields | _times(exchange, lives)


def _times(exchange: Exchange, lives: Sequence[Live]) -> dict[str, float]:
    times: dict[str, float] = {}
    if queued := [live.started - live.sent for live in lives if live.started]:
        times["queue_ms"] = max(queued)
    begun = [live for live in lives if live.first_token]
    if begun:
        times["ttft_ms"] = min(live.first_token for live in begun) - exchange.created
    if gaps := sum(max(len(live.tokens) - 1, 0) for live in begun):
        times["itl_ms"] = sum(live.last_token - live.first_token for live in begun) / gaps
    if ended := [live.ended for live in lives if live.ended]:
        times["e2e_ms"] = max(ended) - exchange.created
    return {name: round(1e3 * max(seconds, 0.0), 3) for name, seconds in times.items()}


def _id(exchange: Exchange) -> str:
    """The client's, or the answer's; of a batch, the first."""
    chosen = exchange.client_id or exchange.rids or ""
    first = chosen if isinstance(chosen, str) else next(iter(chosen), "")
    return first[:MAX_ID_LENGTH]
