"""From what members measured to the parameters of the throughput model, and what they rest on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from tokenrouter.calibration.facts import Facts
from tokenrouter.calibration.windows import Window, totals
from tokenrouter.errors import ConfigError, MeasurementError
from tokenrouter.ipc.member_state import Measurements, StepSums
from tokenrouter.throughput_model import estimate
from tokenrouter.throughput_model.parameters import Latency, System
from tokenrouter.throughput_model.planning.parameter_file import Parameters

DIGITS = 4
FEW_STEPS = 10
"""Sizes of fewer steps get their latency from a line through the others."""


@dataclass(frozen=True)
class Batch:
    """Steps of ``size`` requests: milliseconds measured, with standard error, and of the model.

    ``tokens`` fed for each request, on average.
    """

    size: int
    steps: int
    ms: float
    stderr_ms: float
    model_ms: float
    tokens: float


@dataclass(frozen=True)
class Hop:
    """After steps on one model requests went to ``to``: a ``share`` of them, ± ``stderr``.

    ``committed`` tokens each time, on average.
    """

    to: str
    share: float
    stderr: float
    committed: float


@dataclass(frozen=True)
class ModelFindings:
    """One model. ``geometric``: whether requests leave it after each step with the same chance."""

    name: str
    batches: tuple[Batch, ...]
    hops: tuple[Hop, ...]
    mean_run: float
    geometric: bool


@dataclass(frozen=True)
class Findings:
    """All models, and the parameters to plan with."""

    models: tuple[ModelFindings, ...]
    parameters: Parameters


def find(facts: Facts, windows: Sequence[Window]) -> Findings:
    """What was measured in all windows together.

    The time that prompts took is lost to the other steps of the model, which take longer by it.

    Raises:
        MeasurementError: no model of the deployment follows from it.
    """
    measured = totals(windows)
    told = [_without_rare(each) for each in measured]
    try:
        system = rounded(estimate.system(facts.members, facts.limits, told, prefill=True))
    except ConfigError as error:
        raise MeasurementError(
            f"what was measured makes no system: {error}; measure for more --seconds, or ask "
            "other --prompts"
        ) from error
    models = tuple(_model(facts, system, index, window) for index, window in enumerate(measured))
    runs = {
        model.name: shares(window.runs)
        for model, window in zip(models, measured, strict=True)
        if not model.geometric
    }
    concurrency = tuple(window.concurrency for window in windows)
    return Findings(models, Parameters(system, concurrency, runs=runs))


def _without_rare(measured: Measurements) -> Measurements:
    """Without batch sizes of so few steps that one slow one could tell a wrong story."""
    often = {size: sums for size, sums in measured.steps.items() if sums.count >= FEW_STEPS}
    return msgspec.structs.replace(measured, steps=often or measured.steps)


def rounded(system: System) -> System:
    """With times as people write them: to a tenth of a microsecond."""
    models = tuple(
        replace(
            model,
            latency=Latency(
                base=round(model.latency.base, DIGITS),
                per_request=round(model.latency.per_request, DIGITS),
                per_token=round(model.latency.per_token, DIGITS),
                table={size: round(ms, DIGITS) for size, ms in model.latency.table.items()},
            ),
        )
        for model in system.models
    )
    return replace(system, models=models)


def shares(counts: dict[int, int]) -> dict[int, float]:
    """Each count as a share of all, to a millionth; what is less is left out."""
    total = sum(counts.values())
    found = {length: round(counts[length] / total, 6) for length in sorted(counts)}
    return {length: share for length, share in found.items() if share}


def _model(facts: Facts, system: System, index: int, window: Measurements) -> ModelFindings:
    latency = system.models[index].latency
    return ModelFindings(
        facts.members[index],
        tuple(
            _batch(size, sums, latency.at(size, sums.tokens / sums.count))
            for size, sums in sorted(window.steps.items())
            if sums.count
        ),
        _hops(facts.members, window),
        _mean(window.runs),
        estimate.geometric(window.runs),
    )


def _batch(size: int, sums: StepSums, model_ms: float) -> Batch:
    mean = sums.seconds / sums.count
    variance = max(sums.seconds_squared / sums.count - mean**2, 0.0)
    stderr = math.sqrt(variance / sums.count)
    return Batch(
        size, sums.count, 1e3 * mean, 1e3 * stderr, model_ms, sums.tokens / sums.count / size
    )


def _hops(names: Sequence[str], window: Measurements) -> tuple[Hop, ...]:
    total = sum(count for count, _ in window.hops.values())
    found = []
    for to, (count, kept) in sorted(window.hops.items()):
        if count:
            share = count / total
            stderr = math.sqrt(share * (1 - share) / total)
            found.append(Hop(names[to], share, stderr, kept / count))
    return tuple(found)


def _mean(runs: dict[int, int]) -> float:
    total = sum(runs.values())
    return sum(length * count for length, count in runs.items()) / total if total else 0.0
