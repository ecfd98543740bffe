"""What the zygote is to start: which processes, on which cores, after which imports."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from tokenrouter.config import DETOKENIZER_NAME, FRONT_END_NAME, Config
from tokenrouter.configuration.model_folder import weight_bytes
from tokenrouter.ipc.ports import Ports
from tokenrouter.processes.cores import share
from tokenrouter.processes.protocol import ChildSpec, Launch

GPU_DEVICE = Path("/dev/nvidiactl")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Programs:
    """The functions ("module:function") that children run; ``prepare`` is called first."""

    front_end: str = "tokenrouter.frontend.process:run_front_end"
    detokenizer: str = "tokenrouter.frontend.detokenizer:run_detokenizer"
    member: str = "tokenrouter.subserver.process:run_member"
    prepare: str = "tokenrouter.subserver.sglang_compat.preload:preload"


def plan(config: Config, ports: Ports, programs: Programs) -> Launch:
    """Everything to start for ``config``: members first, as they take longest."""
    on_gpu = uses_gpu(config)
    cores: list[tuple[int, ...]] = [()] * len(config.models) if on_gpu else member_cores(config)
    members = (
        ChildSpec(name, programs.member, index, cores[index])
        for index, name in enumerate(config.names)
    )
    others = (
        ChildSpec(FRONT_END_NAME, programs.front_end),
        ChildSpec(DETOKENIZER_NAME, programs.detokenizer),
    )
    return Launch(
        config.model_dump_json(), ports, (*members, *others), programs.prepare, shared=not on_gpu
    )


def uses_gpu(config: Config) -> bool:
    """Whether any member computes on a GPU, told without loading torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "all") not in ("", "-1")
    has_gpu = visible and GPU_DEVICE.exists()
    devices = [model.sglang.get("device") for model in config.models if model.engine == "sglang"]
    return any(has_gpu if device is None else device != "cpu" for device in devices)


def member_cores(config: Config) -> list[tuple[int, ...]]:
    """The cores of each member; timed members compute nothing and get none."""
    cores = sorted(os.sched_getaffinity(0))
    sizes = [
        max(1, weight_bytes(model.model_path))
        if model.engine == "sglang" and model.model_path
        else 0
        for model in config.models
    ]
    count = sum(size > 0 for size in sizes)
    if count > len(cores):
        logger.warning(
            "%d models share %d cores: none is pinned, and they will wait for each other",
            count,
            len(cores),
        )
    return share(cores, sizes)
