"""The states of a system with given thresholds, and how it moves between them.

From `exact.py`, to which the states go with their transitions. A state is taken just after the
launches that follow a completion: for each model the requests that wait (q), the requests in its
running batch (b, 0 when idle) and the residual time of that batch in whole ticks (r). Time then
advances to the smallest residual; every batch that ends there completes before anything
launches. A completed batch is routed multinomially, and every idle model with q >= theta launches
min(q, limit) requests.

Batches that end together are completed one after the other, through states in which no time
passes (a batch with residual 0 is about to complete); their number grows with the queues, that of
all joint outcomes with a product over the models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.chain import states
from tokenrouter.throughput_model.chain.outcomes import Ints, outcomes_of
from tokenrouter.throughput_model.chain.ticks import in_ticks
from tokenrouter.throughput_model.parameters import Floats, System


class TooManyStatesError(ConfigError):
    """A chain has more states than it may; simulate the system instead."""


@dataclass(frozen=True, eq=False, slots=True)
class Chain:
    """S reachable states, the start first, and their transitions as compressed sparse rows.

    Args:
        tick_ms: the unit of residuals and of ``wait``.
        queue: (S, M) requests that wait for each model.
        batch: (S, M) requests that each model computes.
        wait: (S,) ticks until the next completion; 0 where another batch has just completed.
        ends: (S,) the model whose batch completes then.
        first: (S + 1,) state i goes to targets[first[i]:first[i + 1]],
        targets: (T,) each a state,
        odds: (T,) with these probabilities.
    """

    tick_ms: float
    queue: Ints
    batch: Ints
    wait: Ints
    ends: Ints
    first: NDArray[numpy.int64]
    targets: Ints
    odds: Floats

    @property
    def size(self) -> int:
        """S, the number of states, those in which no time passes included."""
        return len(self.wait)


def explore(system: System, concurrency: int, thresholds: Sequence[int], max_states: int) -> Chain:
    """All states that N = ``concurrency`` requests reach from the queue of model 0.

    Raises:
        TooManyStatesError: there are more than ``max_states``.
        ConfigError: a reachable state is a deadlock, or the tick does not divide a latency.
    """
    tick_ms, ticks = in_ticks(system, concurrency)
    outcomes = outcomes_of(system, concurrency, max_states)
    limits = [system.limit(model, concurrency) for model in range(system.size)]
    ended, rows, wait, ends, first, targets, odds = states.explore(
        concurrency,
        numpy.array(thresholds, dtype=numpy.int32),
        numpy.array(limits, dtype=numpy.int32),
        ticks,
        outcomes.first,
        outcomes.rows,
        outcomes.moves,
        outcomes.odds,
        max_states,
    )
    if ended == states.TOO_MANY:
        raise TooManyStatesError(
            f"concurrency: {concurrency} requests with thresholds {list(thresholds)} have more "
            f"than {max_states} states; simulate them, or take a coarser tick_ms"
        )
    if ended == states.DEADLOCK:
        raise ConfigError(
            f"thresholds: {list(thresholds)} deadlock {concurrency} requests; lower some"
        )
    return Chain(tick_ms, rows[:, 0::3], rows[:, 1::3], wait, ends, first, targets, odds)
