"""The same system, a little different: other latencies, other routing, for `sensitivity.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy
from scipy import optimize

from tokenrouter.throughput_model.parameters import Latency, System

RAREST = 0.02
"""Share of their usual frequency that hand-overs keep at least."""
SAME = 1e-9
"""Hand-overs of a step that are rounding."""


def with_latency(system: System, model: int, factor: float) -> System:
    """Every step of ``model`` takes ``factor`` times as long."""
    models = list(system.models)
    models[model] = replace(models[model], latency=_scaled(models[model].latency, factor))
    return replace(system, models=tuple(models), tick_ms=None)


def hops(system: System) -> Iterator[tuple[int, int]]:
    """(m, k): hand-overs whose probability can change, as it is neither 0 nor 1."""
    for m, k in numpy.argwhere((system.routing > 0) & (system.routing < 1)):
        if m != k:
            yield int(m), int(k)


def with_hop(system: System, m: int, k: int, factor: float) -> System:
    """A step on m leads to k ``factor`` times as often, at most always but for a thousandth.

    What else may follow it takes the rest, in the proportions it had.
    """
    routing = system.routing.copy()
    before = float(routing[m, k])
    after = min(before * factor, max(before, 0.999))
    routing[m] *= (1.0 - after) / (1.0 - before)
    routing[m, k] = after
    return replace(system, routing=routing)


def with_hand_overs(system: System, factor: float) -> System:
    """Where requests may stay on a model or not, they leave it ``factor`` times as often."""
    for m in _choices(system):
        system = with_leaving(system, m, min((1.0 - system.routing[m, m]) * factor, 1.0))
    return system


def with_leaving(system: System, m: int, leave: float) -> System:
    """A step on m leads elsewhere with probability ``leave``, in the proportions there were."""
    routing = system.routing.copy()
    stay = routing[m, m]
    routing[m] *= leave / (1.0 - stay)
    routing[m, m] = 1.0 - leave
    return replace(system, routing=routing)


def widest(system: System, spread: float) -> float:
    """``spread``, or so much less that models are left 1 + it times as often, but not always.

    0: where requests go is nowhere left to chance.
    """
    stays = [system.routing[m, m] for m in _choices(system)]
    return float(min(spread, *(0.95 * stay / (1.0 - stay) for stay in stays))) if stays else 0.0


def opposite(system: System, factor: float) -> float:
    """How often, relatively, models are left at other times, if they are ``factor`` > 1 at some.

    Both last as many steps. Then hand-overs for each token are as many as they were. If these
    depend on the factor too little for that, 2 - ``factor``.
    """

    def hand_overs_and_tokens(factor: float) -> tuple[float, float]:
        """Of one step, wherever."""
        changed = with_hand_overs(system, factor)
        shares = changed.visit_shares
        leaving = 1.0 - changed.routing.diagonal()
        return float(shares @ leaving), float(shares @ changed.tokens_per_visit)

    wanted = hand_overs_and_tokens(1.0)
    busy = hand_overs_and_tokens(factor)

    def surplus(factor: float) -> float:
        calm = hand_overs_and_tokens(factor)
        return (calm[0] + busy[0]) * wanted[1] - (calm[1] + busy[1]) * wanted[0]

    if not surplus(RAREST) < -SAME < SAME < surplus(1.0):
        return max(2.0 - factor, RAREST)
    return float(optimize.brentq(surplus, RAREST, 1.0))


def _choices(system: System) -> list[int]:
    """Models on which requests may stay or not."""
    return [m for m, stay in enumerate(system.routing.diagonal()) if 0.0 < stay < 1.0]


def _scaled(latency: Latency, factor: float) -> Latency:
    return Latency(
        latency.base * factor,
        latency.per_request * factor,
        latency.per_token * factor,
        {size: factor * each for size, each in latency.table.items()},
    )
