"""The best thresholds of a system: for one number of requests, or a table for all.

Small systems are searched whole with the exact chain, others by short simulations of many
vectors (`pattern`, `rounds`) and long ones of the best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tokenrouter.throughput_model.chain import exact
from tokenrouter.throughput_model.parameters import Prediction, System, Thresholds
from tokenrouter.throughput_model.search.rounds import THOROUGH, Draws, finalists, prefer_low
from tokenrouter.throughput_model.search.space import Space, space
from tokenrouter.throughput_model.search.tables import table

__all__ = ["Found", "best", "feasible", "table"]
WHOLE = 150
"""Feasible vectors up to which a search is exact, if their chains are small."""
WHOLE_STATES = 15_000
"""And states of the largest chain of such a search."""


@dataclass(frozen=True, slots=True)
class Found:
    """``best``; and ``tried``: predictions of all candidates that came far, fastest first."""

    best: Prediction
    tried: tuple[Prediction, ...]


def feasible(
    system: System, concurrency: int, fixed: Mapping[int, int] | None = None
) -> Iterator[Thresholds]:
    """All threshold vectors that cannot deadlock, in lexicographic order.

    Raises:
        ConfigError: the ``fixed`` ones are illegal.
    """
    return iter(space(system, concurrency, fixed))


def best(
    system: System,
    concurrency: int,
    fixed: Mapping[int, int] | None = None,
    seed: int = 0,
    margin: float = 0.0,
) -> Found:
    """The thresholds that write the most tokens a second with N = ``concurrency`` requests.

    Args:
        fixed: thresholds of some models, by index, that are not to change.
        margin: gain over thresholds of one that a vector must have to be chosen instead, as
            a share; it must always be more than three standard errors.

    Raises:
        ConfigError: the fixed thresholds are illegal, or a tick does not divide a latency.
    """
    vectors = space(system, concurrency, fixed)
    tried = _exactly(system, concurrency, vectors)
    if tried is None:
        draws = Draws.draw(system, concurrency, THOROUGH, seed)
        tried = finalists(system, concurrency, vectors, THOROUGH, draws, seed=seed)
    fastest = sorted(tried, key=lambda each: -each.tokens_per_s)
    return Found(prefer_low(tried, vectors.low, margin), tuple(fastest))


def _exactly(system: System, concurrency: int, vectors: Space) -> list[Prediction] | None:
    """Exact predictions of all vectors, best first; None if that would take long."""
    if (everything := vectors.some(WHOLE)) is None:
        return None
    try:
        found = [exact.predict(system, concurrency, each, WHOLE_STATES) for each in everything]
    except exact.TooManyStatesError:
        return None
    return sorted(found, key=lambda each: -each.tokens_per_s)
