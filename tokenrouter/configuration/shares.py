"""How members that share a GPU divide its memory when nobody says how.

Used by `examine.py`, which tells, and by the supervisor, before it starts anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tokenrouter.configuration import parallel
from tokenrouter.configuration.machine import Machine
from tokenrouter.configuration.member_plan import MemberPlan, plan

if TYPE_CHECKING:
    from tokenrouter.config import Config

TAKEN = 0.85
"""Of a shared GPU, by weights and KV caches together; activations and CUDA graphs get the rest."""


def shares(members: Sequence[MemberPlan], machine: Machine) -> dict[str, float]:
    """``mem_fraction_static`` of the members that say nothing of their part of a shared GPU.

    Beside their weights all of them can hold the same number of tokens, as every routed request
    must fit into each: with weights w and bytes k per token, a member of a GPU of size s gets
    ``w + (0.85 s - what the others take - all w) k / (all k)``. Who has ranks on several GPUs
    gets the least of its parts.

    Returns:
        By name; without members of a GPU that has no room, or whose size is not known.
    """
    found: dict[str, float] = {}
    for gpu, size in enumerate(machine.gpus):
        there = [member for member in members if gpu in member.gpus]
        silent = [each for each in there if each.fraction is None and each.pool_tokens is None]
        if len(there) < 2 or size is None or not all(each.kv_token for each in silent):
            continue
        others = sum(
            each.needs if each.fraction is None else int(each.fraction * size)
            for each in there
            if each not in silent
        )
        left = TAKEN * size - others - sum(each.weights for each in silent)
        tokens = left / sum(each.kv_token or 0 for each in silent) if silent else 0.0
        for each in silent if tokens >= 1 else ():
            part = (each.weights + tokens * (each.kv_token or 0)) / size
            found[each.name] = min(found.get(each.name, 1.0), math.floor(part * 1e4) / 1e4)
    return found


def filled(config: Config, machine: Callable[[], Machine]) -> Config:
    """``config``, to be served on GPUs, with a part for each member that needs one.

    Args:
        machine: asked only if members share a GPU, as the answer can take a second.

    Raises:
        ConfigError: a file of a model's folder cannot be read.
    """
    devices = [
        gpu for each in config.models if each.engine == "sglang" for gpu in parallel.devices(each)
    ]
    if len(devices) == len(set(devices)):
        return config
    here = machine()
    found = shares([plan(model, here) for model in config.models], here)
    models = tuple(
        model.model_copy(
            update={"sglang": {**model.sglang, "mem_fraction_static": found[model.name]}}
        )
        if model.name in found
        else model
        for model in config.models
    )
    return config.model_copy(update={"models": models})
