"""Throughput of a system from its exact chain: its states (`chain.py`) and their law
(`stationary.py`).

X = E[committed tokens per transition] / E[time per transition], under the stationary law.
Callers choose between this and simulation in `evaluate.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from tokenrouter.throughput_model.chain.chain import Chain, TooManyStatesError, explore
from tokenrouter.throughput_model.chain.stationary import classes, law
from tokenrouter.throughput_model.parameters import Floats, Prediction, System

__all__ = ["MAX_STATES", "TooManyStatesError", "predict"]
MAX_STATES = 20_000


def predict(
    system: System, concurrency: int, thresholds: Sequence[int], max_states: int = MAX_STATES
) -> Prediction:
    """What ``thresholds`` give with N = ``concurrency`` requests that never end.

    They all start in the queue of model 0. If the system can settle in several ways, the
    prediction is their mean, weighed by how likely each is.

    Raises:
        TooManyStatesError: the chain has more than ``max_states``.
        ConfigError: illegal thresholds, or a tick that does not divide a latency.
    """
    legal = system.check(concurrency, thresholds)
    chain = explore(system, concurrency, legal, max_states)
    tokens = chain.batch[numpy.arange(chain.size), chain.ends] * system.tokens_per_visit[chain.ends]
    figures = sum(
        weight * _figures(chain, law(chain, members, tokens), tokens)
        for weight, members in classes(chain)
    )
    rate, utilisation, queue, batch = numpy.split(
        numpy.asarray(figures), 1 + system.size * numpy.arange(3)
    )
    pending = (chain.wait == 0).sum()
    return Prediction(
        concurrency=concurrency,
        thresholds=legal,
        tokens_per_s=float(rate[0]),
        method="exact",
        states=int(chain.size - pending),
        stderr=0.0,
        utilisation=tuple(map(float, utilisation)),
        mean_queue=tuple(map(float, queue)),
        mean_batch=tuple(map(float, batch)),
    )


def _figures(chain: Chain, shares: Floats, tokens: Floats) -> Floats:
    """(1 + 3M,): tokens/s; then utilisation, mean queue and mean batch of each model."""
    models = chain.queue.shape[1]
    time = shares * chain.wait
    total = time.sum()
    steps = numpy.bincount(chain.ends, shares, models)
    own = chain.batch[numpy.arange(chain.size), chain.ends]
    requests = numpy.bincount(chain.ends, shares * own, models)
    return numpy.concatenate(
        [
            [1e3 * (shares @ tokens) / (total * chain.tick_ms)],
            time @ (chain.batch > 0) / total,
            time @ chain.queue / total,
            requests / numpy.maximum(steps, numpy.finfo(float).tiny),
        ]
    )
