"""How a request was routed, as clients see it: ``routing`` and ``llm_ratio``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tokenrouter.ipc.messages import Route


def report(
    route: Route,
    names: Sequence[str],
    member_tokens: Sequence[int],
    hand_overs: int,
    writers: Sequence[int],
) -> dict[str, Any]:
    """The two fields of one request.

    Args:
        names: of all members.
        member_tokens: output tokens by member; empty before the first.
        writers: the member of each output token, reported if the route says so.
    """
    counts = member_tokens or [0] * len(names)
    routing: dict[str, Any] = {
        **({} if route.preset is None else {"preset": route.preset}),
        "algorithm": route.algorithm,
        "router_threshold": route.router_threshold,
        "tokens": {names[member]: counts[member] for member in route.members},
        "hand_overs": hand_overs,
    }
    if route.token_models:
        routing["token_models"] = [names[member] for member in writers]
    return {"routing": routing, "llm_ratio": _ratio(routing["tokens"], names[0])}


def merge(reports: Sequence[dict[str, Any]], first: str) -> dict[str, Any]:
    """The two fields of a response with several choices.

    Counts are summed; ``token_models`` has one list per choice. ``first`` is the name of
    the first member.
    """
    parts = [each["routing"] for each in reports]
    tokens: Counter[str] = Counter()
    for part in parts:
        tokens.update(part["tokens"])
    routing = {
        **parts[0],
        "tokens": dict(tokens),
        "hand_overs": sum(part["hand_overs"] for part in parts),
    }
    if "token_models" in routing:
        routing["token_models"] = [part["token_models"] for part in parts]
    return {"routing": routing, "llm_ratio": _ratio(tokens, first)}


def _ratio(tokens: dict[str, int], first: str) -> float:
    """The share of output tokens that the first member did not write."""
    total = sum(tokens.values())
    return (total - tokens.get(first, 0)) / total if total else 0.0
