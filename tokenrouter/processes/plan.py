"""What the zygote is to start: which processes, on which cores, after which imports."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from tokenrouter.config import DETOKENIZER_NAME, FRONT_END_NAME, PLANNER_NAME, Config
from tokenrouter.configuration.model_folder import weight_bytes
from tokenrouter.configuration.parallel import check_devices, devices, visible_gpus
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
    follower: str = "tokenrouter.subserver.follower:run_follower"
    planner: str = "tokenrouter.planner.process:run_planner"
    prepare: str = "tokenrouter.subserver.sglang_compat.preload:preload"


def plan(config: Config, ports: Ports, programs: Programs) -> Launch:
    """Everything to start for ``config``: members first, as they take longest.

    Raises:
        ConfigError: a member's ranks need GPUs that are not there.
    """
    on_gpu = uses_gpu(config)
    if on_gpu:
        _check_gpus(config)
    cores = no_cores(config) if on_gpu else member_cores(config)
    waves = member_waves(config) if on_gpu else [0] * len(config.models)
    members = (
        ChildSpec(
            rank_name(name, rank),
            programs.follower if rank else programs.member,
            index,
            own,
            rank,
            waves[index],
        )
        for index, name in enumerate(config.names)
        for rank, own in enumerate(cores[index])
    )
    others = [
        ChildSpec(FRONT_END_NAME, programs.front_end),
        ChildSpec(DETOKENIZER_NAME, programs.detokenizer),
    ]
    if config.planned:
        others.append(ChildSpec(PLANNER_NAME, programs.planner))
    return Launch(
        config.model_dump_json(), ports, (*members, *others), programs.prepare, shared=not on_gpu
    )


def _check_gpus(config: Config) -> None:
    count = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"))
    for model, gpus in zip(config.models, member_gpus(config), strict=True):
        if gpus and count:  # the driver need not say how many there are
            check_devices(model, count)


def member_gpus(config: Config) -> list[set[int]]:
    """The GPUs of each member, if it is not to run on the CPU."""
    return [
        set(devices(model))
        if model.engine == "sglang" and model.sglang.get("device") != "cpu"
        else set()
        for model in config.models
    ]


def member_waves(config: Config) -> list[int]:
    """When each member may load: after those before it that use one of its GPUs.

    SGLang looks how much memory is free before and after it loads, and takes the difference for
    its own.
    """
    gpus = member_gpus(config)
    waves: list[int] = []
    for index, own in enumerate(gpus):
        before = [waves[other] for other in range(index) if gpus[other] & own]
        waves.append(max(before, default=-1) + 1)
    return waves


def uses_gpu(config: Config) -> bool:
    """Whether any member computes on a GPU, told without loading torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "all") not in ("", "-1")
    has_gpu = visible and GPU_DEVICE.exists()
    devices = [model.sglang.get("device") for model in config.models if model.engine == "sglang"]
    return any(has_gpu if device is None else device != "cpu" for device in devices)


def rank_name(name: str, rank: int) -> str:
    """What a tensor-parallel rank of member ``name`` is called; no model's name has a ``#``."""
    return f"{name}#{rank}" if rank else name


Cores = tuple[int, ...]


def no_cores(config: Config) -> list[list[Cores]]:
    """No core for any rank of any member: they are not pinned."""
    return [[()] * model.tp_size for model in config.models]


def member_cores(config: Config) -> list[list[Cores]]:
    """The cores of each rank of each member; timed members compute nothing and get none."""
    cores = sorted(os.sched_getaffinity(0))
    sizes = [
        max(1, weight_bytes(model.model_path))
        if model.engine == "sglang" and model.model_path
        else 0
        for model in config.models
    ]
    ranks = [model.tp_size for model in config.models]
    count = sum(each for each, size in zip(ranks, sizes, strict=True) if size)
    if count > len(cores):
        logger.warning(
            "%d models or ranks share %d cores: none is pinned, and they will wait for each other",
            count,
            len(cores),
        )
    return share(cores, sizes, ranks)
