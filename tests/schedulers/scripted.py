"""Drives an algorithm that lets one of two members write each token, over scripted signals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step

SMALL, LARGE = 0, 1


def writers(scheduler: RoutingScheduler, signals: Iterable[Mapping[str, float]]) -> list[int]:
    """Who writes each position, given the small member's signals there.

    The large member hands back after one token; the state is the small member's.
    """
    at_small, at_large = Request([1], 1, SMALL), Request([1], 1, LARGE)
    at_small.state, at_large.state = scheduler.start(at_small), scheduler.start(at_large)
    written = []
    for values in signals:
        decision = scheduler.route(at_small, Step((5,), values))
        if decision == Decision(0, LARGE):
            assert scheduler.route(at_large, Step((6,), {})) == Decision(1, SMALL)
            written.append(LARGE)
        else:
            assert decision == Decision(1, SMALL)
            written.append(SMALL)
    return written


def rows(**columns: Iterable[float]) -> list[dict[str, float]]:
    """Signals position by position, from one column for each."""
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
