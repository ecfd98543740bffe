"""A plan for what a server recorded: its decisions are replayed, step by step, instead of drawn.

Called by `tokenrouter plan --decisions FOLDER`; `decisions.load` reads the folder.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.event_simulation import decisions
from tokenrouter.throughput_model.event_simulation.decision_tapes import Tapes
from tokenrouter.throughput_model.parameters import System
from tokenrouter.throughput_model.planning.parameter_file import Parameters


def with_decisions(parameters: Parameters, folder: Path) -> Parameters:
    """``parameters`` with the decisions in ``folder``, at the concurrency at which they were made.

    Latencies, limits and what is wanted stay as they are; routing and commits, of which only
    bounds and searches make use, are those of the recording on average.

    Raises:
        ConfigError: nothing usable is recorded there, or other models decided.
    """
    names, concurrency = decisions.outline(folder)
    wanted = [model.name for model in parameters.system.models]
    if names != wanted:
        raise ConfigError(
            f"--decisions: {folder}: recorded of {', '.join(names)}, but the parameter file has "
            f"{', '.join(wanted)}; give models these names, in this order"
        )
    return replace(
        parameters,
        system=on_average(parameters.system, decisions.load(folder)),
        concurrency=(concurrency,),
        runs={},
        classes=(),
        decisions=folder,
    )


def on_average(system: System, tapes: Tapes) -> System:
    """``system``, routed and committing as ``tapes`` do on average.

    Raises:
        ConfigError: no step of a model is on them.
    """
    steps, tokens = numpy.zeros((2, system.size, system.size))
    for request, length in enumerate(tapes.lengths):
        to = tapes.following[request, :length]
        at = numpy.concatenate([tapes.first[request : request + 1], to[:-1]])
        numpy.add.at(steps, (at, to), 1.0)
        numpy.add.at(tokens, (at, to), tapes.committed[request, :length])
    for model, total in zip(system.models, steps.sum(axis=1), strict=True):
        if not total:
            raise ConfigError(f"--decisions: no step of {model.name} is recorded; record more")
    return replace(
        system,
        routing=steps / steps.sum(axis=1, keepdims=True),
        committed=tokens / numpy.maximum(steps, 1.0),
    )
