"""Parameters, predictions and outlooks that several tests of plans need."""

from __future__ import annotations

from typing import Any

from tokenrouter.throughput_model.parameters import Latency, Model, Prediction, System, Thresholds
from tokenrouter.throughput_model.planning.outlook import Outlook, Row, Tail
from tokenrouter.throughput_model.planning.parameter_file import Parameters
from tokenrouter.throughput_model.systems import r2r

MODELS = (Model("small", Latency(6.0)), Model("large", Latency(27.9)))


def pair(p: float = 0.35) -> System:
    """The paper's pair of models."""
    return r2r(MODELS, p, tick_ms=0.1)


def parameters(**changes: Any) -> Parameters:
    """Those of the paper's pair, at 4 requests."""
    return Parameters(**{"system": pair(), "concurrency": (4,), **changes})


def prediction(
    thresholds: Thresholds, tokens_per_s: float, stderr: float = 0.0, concurrency: int = 4
) -> Prediction:
    """One that says no more than this of anything."""
    each = (0.5,) * len(thresholds)
    method = "simulated" if stderr else "exact"
    return Prediction(concurrency, thresholds, tokens_per_s, method, 5, stderr, each, each, each)


def outlook(*rows: tuple[Thresholds, float, float], best: int = 0, **changes: Any) -> Outlook:
    """From thresholds, tokens/s and p99 of each row, fastest first."""
    made = tuple(
        Row(
            prediction(thresholds, rate),
            Tail(6.0, p99, (1.0,) * len(thresholds), 0.0),
            of_bound=0.5,
            over_ones=0.25,
            over_lockstep=-0.125,
        )
        for thresholds, rate, p99 in rows
    )
    return Outlook(
        **{
            "concurrency": 4,
            "rows": made,
            "best": made[best],
            "met": True,
            "feasible": len(made),
            "bound": 400.0,
            "bottleneck": None,
            "ones": 150.0,
            "lockstep": 120.0,
            **changes,
        }
    )
