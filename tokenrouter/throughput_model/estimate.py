"""A `System` from what members measured while they served: `Measurements` of a stretch of time.

Used by the planner while a deployment serves, and by `tokenrouter calibrate`. What was not
seen enough is filled in: batch sizes from the start-up profile (or a straight line) scaled to
those that were seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy

from tokenrouter.errors import ConfigError
from tokenrouter.ipc.member_state import Measurements, StepSums
from tokenrouter.throughput_model.parameters import Floats, Latency, Model, System
from tokenrouter.throughput_model.windows import NO_STEPS, total, window

__all__ = [
    "NO_STEPS",
    "geometric",
    "latency",
    "per_token",
    "prefill_share",
    "reached",
    "system",
    "total",
    "window",
]

PRIOR_STEPS = 10
"""Steps of a size that count as much as what other sizes say of it."""
SLOPE_STEPS = 20
"""Fewer steps do not tell what a token costs."""
LEAST_SPREAD = 0.02
"""Nor do steps of one size whose numbers of tokens vary (as a variance) less than so."""
SLOPE_ERRORS = 3.0
"""Standard errors from zero at which a time per token is believed."""
LEAST_MS = 1e-3
"""No step is estimated to take less: a fit may leave nothing for one without tokens."""
MOST_PREFILL = 0.5
"""Share of a member's time that counts as lost to prompts: visits that are ready join their
steps, so that more of them do not make other steps ever longer."""
LEAST_RUNS = 200
"""Fewer runs do not tell whether their lengths are geometric."""
FAR_FROM_GEOMETRIC = 0.15
"""Share of runs whose lengths must differ from a geometric law for it to be given up."""


def reached(windows: Sequence[Measurements]) -> tuple[int, ...]:
    """The models that exchange requests: of groups that can all reach each other, the busiest."""
    count = len(windows)
    hops = _hops(windows)[0]
    leads = (numpy.eye(count) + hops) > 0
    for _ in range(count):
        leads = (leads.astype(int) @ leads.astype(int)) > 0
    mutual = leads & leads.T
    busiest = int(numpy.argmax(mutual @ hops.sum(axis=1)))
    return tuple(int(model) for model in numpy.flatnonzero(mutual[busiest]))


def system(
    names: Sequence[str],
    limits: Sequence[int | None],
    windows: Sequence[Measurements],
    models: Sequence[int] | None = None,
    prefill: bool = False,
) -> System:
    """The system that members measured, one window each.

    Args:
        limits: most requests in a step of each member (None: any number).
        models: only these, as if no request went to any other; None: all.
        prefill: count the time that a member spends on prompts (`prefill_share`) as lost to
            its other steps, which take that much longer.

    Raises:
        ConfigError: requests were not seen to go to a model and to come back from it, or no
            step of a model was seen.
    """
    chosen = tuple(range(len(windows))) if models is None else tuple(models)
    steps, kept = _hops(windows)
    steps, kept = steps[numpy.ix_(chosen, chosen)], kept[numpy.ix_(chosen, chosen)]
    for index, model in enumerate(chosen):
        if not steps[index].sum():
            raise ConfigError(
                f"{names[model]}: no request was routed after a step on it; measure for longer, "
                "with requests that visit every model"
            )
    return System(
        tuple(
            Model(names[m], latency(names[m], windows[m], limits[m], prefill), limits[m])
            for m in chosen
        ),
        steps / steps.sum(axis=1, keepdims=True),
        kept / numpy.maximum(steps, 1),
    )


def latency(
    name: str, measured: Measurements, limit: int | None = None, prefill: bool = False
) -> Latency:
    """The law l(b, tokens) of a model, as a table over b and a time per token.

    Each size's own mean counts by its steps, and the law of the others as `PRIOR_STEPS` more.

    Args:
        limit: the largest size of interest; None: the largest that was seen.
        prefill: as for `system`.

    Raises:
        ConfigError: there is neither a step nor a profile of model ``name``.
    """
    seen = {size: sums for size, sums in measured.steps.items() if sums.count}
    profile = {size: sums for size, sums in measured.profile.items() if sums.count}
    if not seen and not profile:
        raise ConfigError(f"{name}: no step was measured; measure for longer, under load")
    slope = per_token(seen.values())
    if slope is None:
        slope = per_token(profile.values()) or 0.0
    own = {size: _base(sums, slope) for size, sums in seen.items()}
    largest = max(limit or 1, *seen, *profile)
    shape = _Shape(profile or seen)
    counts = {size: sums.count for size, sums in seen.items()}
    level = 1.0
    if seen:
        expected = sum(counts[size] * shape.at(size) for size in seen)
        level = sum(counts[size] * own[size] for size in seen) / expected
    stretch = 1.0 / (1.0 - prefill_share(measured)) if prefill else 1.0
    knots = {*seen, largest, *(1 << k for k in range(largest.bit_length()))}
    table = {}
    for size in sorted(knots):
        count = counts.get(size, 0)
        told = count * own.get(size, 0.0) + PRIOR_STEPS * level * shape.at(size)
        table[size] = stretch * told / (count + PRIOR_STEPS)
    return Latency(table=table, per_token=stretch * slope)


def prefill_share(measured: Measurements) -> float:
    """Share of its time that a member spends on steps with prompts; at most `MOST_PREFILL`."""
    return min(measured.prefill.seconds / measured.at, MOST_PREFILL) if measured.at > 0 else 0.0


def per_token(steps: Iterable[StepSums]) -> float | None:
    """Milliseconds that each fed token adds to a step, at equal numbers of requests.

    Least squares within batch sizes. 0 if it is not `SLOPE_ERRORS` standard errors above 0;
    None if the steps fed too few different numbers of tokens to tell.
    """
    spread = shared = seconds = 0.0
    degrees = -1
    for sums in steps:
        if sums.count > 1:
            spread += sums.tokens_squared - sums.tokens**2 / sums.count
            shared += sums.tokens_seconds - sums.tokens * sums.seconds / sums.count
            seconds += sums.seconds_squared - sums.seconds**2 / sums.count
            degrees += sums.count - 1
    if degrees < SLOPE_STEPS or spread <= LEAST_SPREAD * degrees:
        return None
    slope = shared / spread
    error = math.sqrt(max(seconds - slope * shared, 0.0) / degrees / spread)
    return 1e3 * slope if slope > SLOPE_ERRORS * error else 0.0


def geometric(runs: Mapping[int, int]) -> bool:
    """Whether lengths of runs (steps in a row on one model) may be taken as geometric.

    The chain and the count-based simulation assume so. False if there are enough runs, and
    more than `FAR_FROM_GEOMETRIC` of them would have to be of other lengths (total variation
    distance to the geometric law of the same mean), chance aside.
    """
    count = sum(runs.values())
    if count < LEAST_RUNS:
        return True
    stop = count / sum(length * each for length, each in runs.items())
    distance, chance, rest = 0.0, 0.0, 1.0
    for length in range(1, max(runs) + 1):
        share = stop * rest
        distance += abs(runs.get(length, 0) / count - share)
        # Mean absolute deviation of a binomial share.
        chance += math.sqrt(2.0 / math.pi * share * (1.0 - share) / count)
        rest -= share
    return (distance + rest - chance) / 2 <= FAR_FROM_GEOMETRIC


class _Shape:
    """Milliseconds of a step by its size, from sums that may lack sizes.

    Linear between sizes; beyond the largest on, as a straight line through all of them rises.
    """

    def __init__(self, steps: Mapping[int, StepSums]) -> None:
        slope = per_token(steps.values()) or 0.0
        self._sizes = sorted(steps)
        self._times = [_base(steps[size], slope) for size in self._sizes]
        weights = numpy.sqrt([steps[size].count for size in self._sizes])
        self._rise = 0.0
        if len(self._sizes) > 1:
            rise = numpy.polyfit(self._sizes, self._times, 1, w=weights)[0]
            self._rise = max(float(rise), 0.0)

    def at(self, size: int) -> float:
        inside = float(numpy.interp(size, self._sizes, self._times))
        return inside + self._rise * max(size - self._sizes[-1], 0)


def _base(sums: StepSums, slope: float) -> float:
    """Mean milliseconds of a step beyond those of its tokens."""
    return max((1e3 * sums.seconds - slope * sums.tokens) / sums.count, LEAST_MS)


def _hops(windows: Sequence[Measurements]) -> tuple[Floats, Floats]:
    """(M, M) twice: steps by where their requests went, and the tokens that these kept."""
    shape = (len(windows), len(windows))
    steps, kept = numpy.zeros(shape), numpy.zeros(shape)
    for model, measured in enumerate(windows):
        for to, (count, tokens) in measured.hops.items():
            steps[model, to] += count
            kept[model, to] += tokens
    return steps, kept
