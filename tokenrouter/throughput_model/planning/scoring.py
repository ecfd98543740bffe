"""Predictions for one concurrency of a parameter file, by whichever method knows what it says.

Throughput is the chain's, or its simulation (`evaluate.py`), where requests are alike and
memoryless; the event simulation's (`events.py`) where the file has run lengths or classes,
recorded decisions are replayed, or the longest wait is limited. Gaps and waits are always the
event simulation's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy

from tokenrouter.throughput_model import evaluate
from tokenrouter.throughput_model.bounds import Bounds, bounds
from tokenrouter.throughput_model.event_simulation import decisions
from tokenrouter.throughput_model.event_simulation.replays import Replays, longest_wait_ms
from tokenrouter.throughput_model.parameters import Prediction, System, Thresholds
from tokenrouter.throughput_model.planning.outlook import Tail
from tokenrouter.throughput_model.planning.parameter_file import Parameters, RequestClass
from tokenrouter.throughput_model.planning.perturbation import with_leaving

STEPS = 200_000
"""Steps of all requests together in an event simulation, about, for gaps and waits."""
MORE_STEPS = 1_000_000
"""As `STEPS`, where it also gives the throughput."""
LEAST = 600
"""Steps of each request, at least."""
UNEVEN = 2.5
"""How many times the mean number of steps some request may make; its tape repeats after them."""


class Scorer:
    """Predicts what threshold vectors give when ``concurrency`` requests are served."""

    def __init__(self, parameters: Parameters, concurrency: int, seed: int) -> None:
        self.system = with_mean_runs(parameters)
        self.concurrency = concurrency
        self._parameters = parameters
        self.seed = seed
        self._predictions: dict[Thresholds, Prediction] = {}

    @property
    def memoryless(self) -> bool:
        """Whether the chain describes all that the file says."""
        given = self._parameters
        hurried = given.max_wait_ms is not None and not math.isinf(given.max_wait_ms)
        return not (given.runs or given.classes or given.decisions or hurried)

    @property
    def max_wait_ms(self) -> float | None:
        """Longest wait for a threshold; None: any."""
        given = self._parameters.max_wait_ms
        if given is None:
            return longest_wait_ms(self.system, self.concurrency)
        return None if math.isinf(given) else given

    @cached_property
    def bounds(self) -> Bounds:
        """What no thresholds can exceed; of classes, if each were bounded by itself.

        With run lengths, of requests that never end: these cut runs off, half a per cent or so.
        """
        kinds = self._parameters.classes or (RequestClass(1.0, self.system),)
        found = [(kind.share, bounds(kind.system, self.concurrency)) for kind in kinds]
        saturated = numpy.max([each.saturated for _, each in found], axis=0)
        return Bounds(
            no_waiting=sum(share * each.no_waiting for share, each in found),
            saturated=tuple(float(each) for each in saturated),
        )

    @property
    def bound(self) -> float:
        """Tokens/s that no thresholds can exceed."""
        return self.bounds.tokens_per_s

    def predict(self, thresholds: Thresholds) -> Prediction:
        """Throughput, use of the models and queues; asked again, the same."""
        if thresholds not in self._predictions:
            self._predictions[thresholds] = (
                evaluate.predict(self.system, self.concurrency, thresholds)
                if self.memoryless
                else self._from_trace(thresholds)
            )
        return self._predictions[thresholds]

    def tail(self, thresholds: Thresholds) -> Tail:
        """Gaps between tokens, and waits."""
        trace = self._replays.trace(thresholds)
        return Tail(
            itl_p50_ms=trace.itl_p50_ms,
            itl_p99_ms=trace.itl_p99_ms,
            wait_ms=trace.mean_wait_ms,
            expired=1e3 * sum(trace.expired_waits) / self._replays.duration_ms,
        )

    def itl_p99_ms(self, thresholds: Thresholds) -> float:
        """Gap that 1 % of the tokens exceed."""
        return self._replays.trace(thresholds).itl_p99_ms

    def _from_trace(self, thresholds: Thresholds) -> Prediction:
        trace = self._replays.trace(thresholds)
        return Prediction(
            concurrency=self.concurrency,
            thresholds=thresholds,
            tokens_per_s=trace.tokens_per_s,
            method="simulated",
            states=0,
            stderr=trace.stderr,
            utilisation=trace.utilisation,
            mean_queue=trace.mean_queue,
            mean_batch=trace.mean_batch,
        )

    @cached_property
    def _replays(self) -> Replays:
        if self._parameters.decisions:  # none twice: the standard error would not know
            tapes = decisions.load(self._parameters.decisions, self.concurrency)
            steps = min(MORE_STEPS, int(tapes.lengths.sum()))
        else:
            steps = max(STEPS if self.memoryless else MORE_STEPS, LEAST * self.concurrency)
            tapes = self.draw(int(UNEVEN * steps / self.concurrency) + 1000)
        return Replays(self.system, tapes, steps, self.max_wait_ms)

    def draw(self, steps: int) -> decisions.Tapes:
        """What every request decides in so many steps."""
        given = self._parameters
        if given.classes:
            counts = shared_out([kind.share for kind in given.classes], self.concurrency)
            kinds = [(kind.system, n) for kind, n in zip(given.classes, counts, strict=True)]
            return decisions.classes(kinds, steps, self.seed)
        if given.runs:
            runs = [given.runs.get(model.name, {}) for model in self.system.models]
            return decisions.from_runs(self.system, runs, self.concurrency, steps, self.seed)
        return decisions.draw(self.system, self.concurrency, steps, self.seed)


def with_mean_runs(parameters: Parameters) -> System:
    """The system, in which a step leaves a model as often as the run lengths given for it say."""
    system = parameters.system
    for m, model in enumerate(system.models):
        if runs := parameters.runs.get(model.name):
            mean = sum(length * share for length, share in runs.items())
            system = with_leaving(system, m, 1.0 / mean)
    return system


def shared_out(shares: Sequence[float], total: int) -> list[int]:
    """``total`` in whole parts as near to ``shares``, which add up to one, as can be."""
    exact = numpy.array(shares) * total
    counts = numpy.floor(exact).astype(int)
    largest = numpy.argsort(counts - exact, kind="stable")
    counts[largest[: total - counts.sum()]] += 1
    return [int(count) for count in counts]
