"""From a parameter file to what every threshold vector gives at every concurrency.

Called by `tokenrouter plan`; asks `candidates.py` for vectors, `scoring.py` for numbers and
`objective.py` for the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenrouter.configuration.values import Objective
from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.parameters import Thresholds
from tokenrouter.throughput_model.planning.candidates import candidates, count, left_out
from tokenrouter.throughput_model.planning.objective import choose
from tokenrouter.throughput_model.planning.outlook import Outlook, Row, lockstep, ones
from tokenrouter.throughput_model.planning.parameter_file import Parameters
from tokenrouter.throughput_model.planning.scoring import Scorer

RARE = 1e-3
"""Launches by the longest wait for each token, above which a plan tells of them."""

Progress = Callable[[float, str], None]
"""Takes the share of the work that is done, 0 to 1, and what is being done."""


def plan(parameters: Parameters, progress: Progress, seed: int = 0) -> list[Outlook]:
    """What can be expected at each concurrency of ``parameters``.

    Raises:
        ConfigError: there is no concurrency at which any of the given thresholds is feasible.
    """
    outlooks = []
    for index, concurrency in enumerate(parameters.concurrency):
        begun, what = index / len(parameters.concurrency), f"{concurrency} at once"
        progress(begun, what)
        scorer = Scorer(parameters, concurrency, seed)
        vectors = candidates(scorer.system, concurrency, parameters.thresholds, seed)
        if not vectors:
            continue  # which `notes` tells
        for done, vector in enumerate(vectors):
            progress(begun + done / len(vectors) / len(parameters.concurrency), what)
            scorer.predict(vector)
            scorer.tail(vector)
        outlooks.append(_outlook(scorer, vectors, parameters.objective))
    if not outlooks:
        raise ConfigError(*(f"thresholds: {each}" for each in _left_out(parameters)))
    return outlooks


def _left_out(parameters: Parameters) -> list[str]:
    """For each concurrency, which of the given vectors are not looked at, and why."""
    found = []
    for concurrency in parameters.concurrency:
        without = left_out(parameters.system, concurrency, parameters.thresholds)
        for vector, why in list(without.items())[:1]:
            others = f" and {len(without) - 1} more" if len(without) > 1 else ""
            requests = "1 request" if concurrency == 1 else f"{concurrency} requests"
            found.append(f"{','.join(map(str, vector))}{others} left out for {requests}: {why}")
    return found


def _outlook(scorer: Scorer, vectors: Sequence[Thresholds], objective: Objective) -> Outlook:
    system, concurrency = scorer.system, scorer.concurrency
    by_ones = scorer.predict(ones(system)).tokens_per_s
    by_lockstep = scorer.predict(lockstep(system, concurrency)).tokens_per_s
    predictions = [scorer.predict(vector) for vector in vectors]
    rows = [
        Row(
            found,
            scorer.tail(found.thresholds),
            of_bound=found.tokens_per_s / scorer.bound,
            over_ones=found.tokens_per_s / by_ones - 1.0,
            over_lockstep=found.tokens_per_s / by_lockstep - 1.0,
        )
        for found in sorted(predictions, key=lambda each: (-each.tokens_per_s, each.thresholds))
    ]
    best, met = choose(predictions, scorer.itl_p99_ms, objective)
    return Outlook(
        concurrency,
        tuple(rows),
        next(row for row in rows if row.prediction is best),
        met,
        feasible=count(system, concurrency),
        bound=scorer.bound,
        bottleneck=scorer.bounds.bottleneck,
        ones=by_ones,
        lockstep=by_lockstep,
    )


def notes(parameters: Parameters, outlooks: Sequence[Outlook]) -> list[str]:
    """What readers of a plan have to know, besides its numbers."""
    found = _left_out(parameters)
    if parameters.runs:
        which = ", ".join(parameters.runs)
        found.append(f"runs of {which} are not geometric: all is simulated, request by request")
    if parameters.decisions:
        found.append(
            f"decisions recorded in {parameters.decisions} are replayed, request by request, with "
            "their routing instead of the file's"
        )
    if parameters.classes:
        found.append(f"{len(parameters.classes)} classes: all is simulated, request by request")
    hurried = [
        f"{','.join(map(str, outlook.best.thresholds))} at {outlook.concurrency}"
        for outlook in outlooks
        if outlook.best.tail.expired > RARE * outlook.best.tokens_per_s
    ]
    if hurried and parameters.max_wait_ms is None:
        found.append(
            f"with {', '.join(hurried)} some wait for ten of the longest steps and then launch "
            "anyway: gaps and waits know that, tokens/s do not; simulate it with --max-wait-ms"
        )
    return found
