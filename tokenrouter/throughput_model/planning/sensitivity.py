"""How far a plan can be trusted: what it costs to keep its best thresholds when it is wrong.

Latencies and routing probabilities are changed by a fifth, one at a time; then hand-overs come
in bursts, and two classes of requests hand over more and less often, both with the routing of
the file on average.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tokenrouter.throughput_model.event_simulation.decisions import Tapes, bursty
from tokenrouter.throughput_model.planning.objective import choose, limit_ms
from tokenrouter.throughput_model.planning.outlook import Case, Outlook, ones
from tokenrouter.throughput_model.planning.parameter_file import Parameters, RequestClass
from tokenrouter.throughput_model.planning.perturbation import (
    hops,
    opposite,
    widest,
    with_hand_overs,
    with_hop,
    with_latency,
)
from tokenrouter.throughput_model.planning.scoring import Scorer

CHANGE = 0.2
"""Relative error of a latency or a probability."""
BURST = 0.8
"""By turns, hand-overs are this much more frequent, and rarer so that all are as many."""
STRETCH = 50.0
"""Mean steps of a request in each turn."""
SPREAD = 0.5
"""In one of two classes hand-overs are this much rarer, in the other more frequent."""
VECTORS = 24
"""How many of the plan's fastest vectors are tried."""


def cases(parameters: Parameters, outlook: Outlook, seed: int = 0) -> Iterator[Case]:
    """What becomes of the plan for one concurrency, for each way in which it may be wrong."""
    kept = outlook.best.thresholds
    fastest = [row.thresholds for row in outlook.rows[:VECTORS]]
    vectors = list(dict.fromkeys([kept, ones(parameters.system), *fastest]))
    for what, scorer in _scorers(parameters, outlook.concurrency, seed):
        predictions = [scorer.predict(each) for each in vectors]
        best, _ = choose(predictions, scorer.itl_p99_ms, parameters.objective)
        mine = predictions[0]
        p99 = scorer.itl_p99_ms(kept)
        if mine.tokens_per_s >= best.tokens_per_s and p99 <= limit_ms(parameters.objective):
            best = mine  # which noise alone put behind lower thresholds
        yield Case(
            concurrency=outlook.concurrency,
            what=what,
            best=best,
            kept=mine,
            regret=1.0 - mine.tokens_per_s / best.tokens_per_s,
            kept_itl_p99_ms=p99,
        )


def notes(parameters: Parameters) -> list[str]:
    """Why bursts and two kinds of requests are not among the `cases`, if they are not."""
    if parameters.decisions:
        why = "recorded decisions say themselves where requests go"
    elif parameters.runs or parameters.classes:
        given = "runs" if parameters.runs else "classes"
        why = f"{given} in the file say themselves how hand-overs are spaced"
    elif not widest(parameters.system, SPREAD):
        why = "where requests go is nowhere left to chance"
    else:
        return []
    return [f"--sensitivity without hand-overs in bursts and two kinds of requests: {why}"]


def _scorers(parameters: Parameters, concurrency: int, seed: int) -> Iterator[tuple[str, Scorer]]:
    for what, changed in _changes(parameters):
        yield what, Scorer(changed, concurrency, seed)
    system = parameters.system
    if notes(parameters):
        return
    spread = widest(system, SPREAD)
    halves = [RequestClass(0.5, with_hand_overs(system, 1.0 + x)) for x in (-spread, spread)]
    what = f"half the requests hand over {spread:.0%} less, half more"
    yield what, Scorer(replace(parameters, classes=tuple(halves)), concurrency, seed)
    busy = 1.0 + widest(system, BURST)
    calm = opposite(system, busy)
    what = f"hand-overs x {calm:.2f} and x {busy:.2f} by turns"
    yield what, _Bursty(parameters, concurrency, seed, calm, busy)


def _changes(parameters: Parameters) -> Iterator[tuple[str, Parameters]]:
    """Other latencies, and other routing where it is not given by run lengths."""
    system = parameters.system
    names = [model.name for model in system.models]
    for index, name in enumerate(names):
        for sign in (-CHANGE, CHANGE):
            slower = with_latency(system, index, 1.0 + sign)
            yield f"latency of {name} {sign:+.0%}", replace(parameters, system=slower)
    for m, k in () if parameters.decisions else hops(system):
        for sign in (-CHANGE, CHANGE) if names[m] not in parameters.runs else ():
            kinds = tuple(
                replace(kind, system=with_hop(kind.system, m, k, 1.0 + sign))
                for kind in parameters.classes
            )
            routed = with_hop(system, m, k, 1.0 + sign)
            what = f"{names[m]} to {names[k]} {sign:+.0%}"
            yield what, replace(parameters, system=routed, classes=kinds)


class _Bursty(Scorer):
    """Requests that alternate between few and many hand-overs."""

    memoryless = False

    def __init__(
        self, parameters: Parameters, concurrency: int, seed: int, calm: float, busy: float
    ) -> None:
        super().__init__(parameters, concurrency, seed)
        self._calm = with_hand_overs(self.system, calm)
        self._busy = with_hand_overs(self.system, busy)

    def draw(self, steps: int) -> Tapes:
        """Turns of `STRETCH` steps on average, of each request by itself."""
        return bursty(self._calm, self._busy, self.concurrency, steps, self.seed, STRETCH)
