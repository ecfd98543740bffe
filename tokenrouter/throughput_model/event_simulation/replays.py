"""Threshold vectors on the same decisions, each from several beginnings.

Plans and the planner score by these whatever the chain does not know. Requests that begin
together may stay in step, where some thresholds are fast, and others fall into one of several
rhythms. So each begins somewhere in its own decisions (`decisions.staggered`), several times.
"""

from __future__ import annotations

import numpy

from tokenrouter.configuration.waits import longest_wait
from tokenrouter.throughput_model.event_simulation import decisions, events
from tokenrouter.throughput_model.event_simulation.decision_tapes import Tapes
from tokenrouter.throughput_model.event_simulation.trace import Trace, pooled
from tokenrouter.throughput_model.parameters import System, Thresholds

BEGINNINGS = 6
"""Simulations of each vector."""
PILOT = 0.1
"""Share of the steps of one simulation that tells how fast steps are."""
SLOWEST = 10.0
"""Times that steps may take what they would without waits, to be simulated in full."""
FASTEST = 20
"""Times that a vector may make the steps that were meant, before that is an error."""


class Replays:
    """Of all requests of ``tapes``, about ``steps`` together in all simulations of a vector.

    ``duration_ms``: of all of them, with the same for every vector.
    """

    def __init__(self, system: System, tapes: Tapes, steps: int, max_wait_ms: float | None) -> None:
        self._system, self._max_wait = system, max_wait_ms
        self._steps = max(1, steps // BEGINNINGS)
        self._tapes = [decisions.staggered(tapes, seed) for seed in range(BEGINNINGS)]
        self._traces: dict[Thresholds, Trace] = {}
        self._each = self._duration(tapes)
        self.duration_ms = BEGINNINGS * self._each

    def trace(self, vector: Thresholds) -> Trace:
        """What all simulations saw together; asked again, the same.

        Raises:
            ConfigError: illegal thresholds, or far more steps than were meant.
        """
        if vector not in self._traces:
            self._traces[vector] = pooled(
                [self._simulate(vector, tapes, self._each) for tapes in self._tapes]
            )
        return self._traces[vector]

    def _simulate(self, vector: Thresholds, tapes: Tapes, duration: float) -> Trace:
        most = FASTEST * self._steps + int(tapes.lengths.sum())
        return events.simulate(
            self._system, vector, tapes, duration, max_wait_ms=self._max_wait, most_steps=most
        )

    def _duration(self, tapes: Tapes) -> float:
        """Milliseconds in which thresholds of 1 make the steps: less, if they take very long."""
        pilot = PILOT * shortest_ms(self._system, tapes, self._steps)
        ones = (1,) * self._system.size
        made = int(self._simulate(ones, self._tapes[0], pilot).hops.sum())
        return pilot * min(self._steps / max(made, 1), SLOWEST / PILOT)


def shortest_ms(system: System, tapes: Tapes, steps: int) -> float:
    """Time in which the requests make so many steps, if each takes the least and none waits."""
    least = numpy.array([system.latencies(m, tapes.requests).min() for m in range(system.size)])
    paces = [
        length / least[tapes.following[request, :length]].sum()
        for request, length in enumerate(tapes.lengths)
    ]
    return float(steps / numpy.sum(paces))


def longest_wait_ms(system: System, concurrency: int) -> float:
    """That of the server, unless it is told another."""
    longest = (system.latencies(m, concurrency).max() for m in range(system.size))
    return float(longest_wait(longest))
