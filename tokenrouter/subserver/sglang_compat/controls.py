"""Flushing, profiling and new weights, by the stock scheduler that an engine owns.

Called by `engine.py` between steps, on every rank.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sglang.srt.managers.io_struct import UpdateWeightFromDiskReqInput
from sglang.srt.managers.scheduler import Scheduler

from tokenrouter.errors import RequestError, TokenRouterError
from tokenrouter.ipc.operations import Action

# Above all severities: PyTorch's tracer would write lines of its own to stderr, among our logs.
QUIET_KINETO = "6"
SHAPES = (
    "architectures",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
)
"""What new weights must have in common with the old ones, as config.json says it."""


def control(scheduler: Scheduler, action: Action, arguments: Mapping[str, Any]) -> str:
    """Do ``action``; returns what happened.

    Raises:
        TokenRouterError: it cannot be done, and why; everything is as it was before.
    """
    match action:
        case "flush_cache":
            return _flush(scheduler)
        case "start_profile":
            return _start_profile(scheduler, arguments)
        case "stop_profile":
            return _stop_profile(scheduler)
        case "update_weights_from_disk":
            return _update_weights(scheduler, arguments)


def _flush(scheduler: Scheduler) -> str:
    if not scheduler.flush_cache():
        raise TokenRouterError("SGLang's scheduler holds requests")
    return "the prefix cache is empty"


def _start_profile(scheduler: Scheduler, arguments: Mapping[str, Any]) -> str:
    known = {"CPU", "GPU", "MEM", "CUDA_PROFILER"}
    on_cpu = scheduler.device == "cpu"
    activities = arguments.get("activities") or (["CPU"] if on_cpu else ["CPU", "GPU"])
    possible = {"CPU"} if on_cpu else known
    if unknown := set(activities) - possible:
        raise RequestError(
            f"activities: {min(unknown)!r} cannot be recorded here; choose from "
            f"{', '.join(sorted(possible))}",
            "activities",
        )
    answer = scheduler.init_profile(
        arguments.get("output_dir"), None, None, activities, arguments.get("with_stack"),
        arguments.get("record_shapes"), False, arguments["profile_id"],
    )  # fmt: skip
    if not answer.success:
        raise TokenRouterError(answer.message)
    os.environ.setdefault("KINETO_LOG_LEVEL", QUIET_KINETO)  # read when the first profile starts
    scheduler.start_profile()
    return f"recording; the trace will be written into {scheduler.torch_profiler_output_dir}"


def _stop_profile(scheduler: Scheduler) -> str:
    folder = scheduler.torch_profiler_output_dir
    try:
        answer = scheduler.stop_profile()
    except OSError as error:
        raise TokenRouterError(f"the trace cannot be written: {error}") from error
    if not answer.success:
        raise TokenRouterError(answer.message)
    return f"the trace is in {folder}"


def _update_weights(scheduler: Scheduler, arguments: Mapping[str, Any]) -> str:
    runner = scheduler.tp_worker.model_runner
    _check_shapes(runner.model_config.hf_config.to_dict(), arguments["model_path"])
    before = runner.model_config.model_path, runner.server_args.load_format
    loaded, message = _load(
        scheduler, arguments["model_path"], arguments.get("load_format") or "auto"
    )
    if not loaded:
        # SGLang would read the weights to go back to from the folder that it could not load.
        restored, reason = _load(scheduler, *before)
        if not restored:
            raise RuntimeError(f"the weights are lost: {message}, then {reason}")
        raise TokenRouterError(f"{message}; the old weights are in place")
    _flush(scheduler)
    return f"weights of {arguments['model_path']}"


def _load(scheduler: Scheduler, path: str, load_format: str) -> tuple[bool, str]:
    request = UpdateWeightFromDiskReqInput(model_path=path, load_format=load_format)
    try:
        loaded, message = scheduler.tp_worker.update_weights_from_disk(request)
    except Exception as error:  # noqa: BLE001 - a loader may raise anything about a file
        return False, f"weights of {path} cannot be loaded: {error}"
    return bool(loaded), str(message)


def _check_shapes(mine: Mapping[str, Any], path: str) -> None:
    config = Path(path) / "config.json"
    try:
        other = json.loads(config.read_text())
    except (OSError, ValueError) as error:
        raise RequestError(f"model_path: cannot read {config}: {error}", "model_path") from error
    for name in SHAPES:
        if name in other and name in mine and other[name] != mine[name]:
            raise RequestError(
                f"model_path: {path} has {name} {other[name]}, and this member {mine[name]}; "
                "only weights of the same shapes can be exchanged",
                "model_path",
            )
