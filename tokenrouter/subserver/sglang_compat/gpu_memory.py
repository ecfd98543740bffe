"""Lets several members share a GPU: ``mem_fraction_static`` is of the whole GPU, for each of them.

SGLang takes it of the memory that is free when it starts, so that a second member's share would
depend on the first one's. Members that share a GPU start one after the other (`processes.plan`).
Used by `loading.py`, for a member on CUDA that has a fraction of its own.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from sglang.srt.model_executor.model_runner import ModelRunner

GIB = 1024**3


def count_fractions_of_whole_gpus() -> None:
    """Change SGLang so, in this process."""
    stock = ModelRunner.profile_max_num_token

    @functools.wraps(stock)
    def profile(runner: Any, free_gib: float) -> Any:
        given = runner.mem_fraction_static
        whole_gib = torch.cuda.get_device_properties(runner.gpu_id).total_memory / GIB
        runner.mem_fraction_static = fraction_of_free(given, whole_gib, free_gib)
        try:
            return stock(runner, free_gib)
        finally:
            runner.mem_fraction_static = given

    ModelRunner.profile_max_num_token = profile


def fraction_of_free(fraction: float, whole: float, free: float) -> float:
    """The share of the ``free`` memory that is ``fraction`` of the ``whole``; at most all of it.

    SGLang gives weights w and KV cache ``free - w - free * (1 - f)``, together ``f * free``:
    with this f, ``fraction * whole``.
    """
    return min(1.0, fraction * whole / free)
