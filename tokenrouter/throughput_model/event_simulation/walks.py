"""The steps of one request, drawn from uniform numbers. Called by `decisions.py`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.compiled import compiled
from tokenrouter.throughput_model.event_simulation.decision_tapes import Commits, Models
from tokenrouter.throughput_model.parameters import Floats


def cumulative(rows: Floats) -> Floats:
    """Sums along each row; its last possible model and all beyond get 1, whatever the rounding."""
    sums: Floats = rows.cumsum(axis=-1)
    last = rows.shape[-1] - 1 - numpy.argmax(rows[..., ::-1] > 0, axis=-1)
    sums[numpy.arange(rows.shape[-1]) >= last[..., None]] = 1.0
    return sums


def hazard(lengths: Mapping[int, float], longest: int, leave: float) -> Floats:
    """(longest + 1,): the chance to leave after n steps in a row, given that one stayed so long."""
    counts = numpy.zeros(longest + 1)
    for length, count in lengths.items():
        if length < 1 or count < 0:
            raise ConfigError(f"runs: {count} runs of {length} steps; both must be from 1 on")
        if count:
            counts[length] = count
    if not counts.sum():
        return numpy.full(longest + 1, leave)
    survivors = counts[::-1].cumsum()[::-1]
    hazard: Floats = numpy.where(survivors > 0, counts / numpy.maximum(survivors, 1e-300), 1.0)
    return hazard


@compiled
def walk(
    uniform: Floats,
    flip: float,
    cumulative: Floats,
    committed: Commits,
    following: Models,
    kept: Commits,
) -> int:
    """One request's steps, from model 0; returns how many until it was last back there."""
    model, regime, length = 0, 0, 0
    for step in range(len(following)):
        to = 0
        while uniform[step, 0] >= cumulative[regime, model, to]:
            to += 1
        following[step] = to
        kept[step] = committed[regime, model, to]
        model = to
        if flip > 0 and uniform[step, 1] < flip:
            regime = 1 - regime
        if model == 0:
            length = step + 1
    return length


@compiled
def walk_runs(
    uniform: Floats,
    ends: float,
    hazards: Floats,
    cumulative: Floats,
    committed: Commits,
    following: Models,
    kept: Commits,
) -> int:
    """As `walk`, leaving a model by the length of the run there; ends after a whole run.

    With probability ``ends`` a step is the last of its request: another begins, on model 0.
    """
    model, run, length = 0, 0, 0
    for step in range(len(following)):
        run += 1
        to = model
        if uniform[step, 0] < hazards[model, min(run, hazards.shape[1] - 1)]:
            run, to = 0, 0
            while uniform[step, 1] >= cumulative[model, to]:
                to += 1
        kept[step] = committed[model, to]
        if uniform[step, 2] < ends:
            run, to = 0, 0
        following[step] = to
        model = to
        if model == 0 and run == 0:
            length = step + 1
    return length
