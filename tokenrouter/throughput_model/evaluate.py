"""A prediction by the method that fits the system: exact where its chain is small enough."""

from __future__ import annotations

from collections.abc import Sequence

from tokenrouter.throughput_model.chain import exact
from tokenrouter.throughput_model.count_simulation import beginnings
from tokenrouter.throughput_model.parameters import Prediction, System


def predict(
    system: System,
    concurrency: int,
    thresholds: Sequence[int],
    max_states: int = exact.MAX_STATES,
    events: int = 100_000,
    seed: int = 0,
) -> Prediction:
    """What ``thresholds`` give with N = ``concurrency`` requests that never end.

    From the exact chain if it has at most ``max_states``, else from ``events`` simulated
    completions, of requests that begin together or, if that gives less, scattered; the
    prediction says which method it is of, and its standard error.

    Raises:
        ConfigError: illegal thresholds, or a tick that does not divide a latency.
    """
    try:
        return exact.predict(system, concurrency, thresholds, max_states)
    except exact.TooManyStatesError:
        vectors = [system.check(concurrency, thresholds)]
        return beginnings.robust(system, concurrency, vectors, events, seed)[0]
