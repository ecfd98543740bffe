"""What a deployment would run on, found without torch."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from dataclasses import dataclass

import psutil

from tokenrouter.configuration.parallel import visible_gpus
from tokenrouter.errors import ConfigError

MIB = 1024**2
QUERY_LIMIT_S = 20.0
"""The first question to an idle driver takes it seconds."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Bytes of memory: of the host, and of each GPU (None: not known) as CUDA numbers them."""

    ram: int
    gpus: tuple[int | None, ...] = ()


def this_machine() -> Machine:
    """The machine of this process, as far as CUDA_VISIBLE_DEVICES lets it be seen."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    sizes = _gpu_bytes()
    count = visible_gpus(visible)
    if not count and sizes:  # a container may hide the driver's folder
        there = range(len(sizes))
        count = len(there if visible is None else [n for n in _numbers(visible) if n in there])
    chosen = range(count) if visible is None else _numbers(visible)[:count]
    gpus = tuple(
        sizes[i] if i is not None and i < len(sizes) else None for i in [*chosen, *[None] * count]
    )
    return Machine(psutil.virtual_memory().total, gpus[:count])


def chosen_machine(gpus: int | None, gpu_gib: float | None) -> Machine:
    """This machine, but with the GPUs that were asked for, if any were.

    Raises:
        ConfigError: memory of no GPU; a number or a size that cannot be.
    """
    if gpu_gib is not None and not 0 < gpu_gib < math.inf:
        raise ConfigError(f"--gpu-gib: must be a number of GiB above 0, got {gpu_gib:g}")
    if gpus is None:
        if gpu_gib is not None:
            raise ConfigError("--gpu-gib: say of how many GPUs with --gpus")
        return this_machine()
    if gpus < 0:
        raise ConfigError(f"--gpus: must be 0 or more, got {gpus}")
    size = None if gpu_gib is None else int(gpu_gib * 1024 * MIB)
    return Machine(psutil.virtual_memory().total, (size,) * gpus)


def _numbers(visible: str) -> list[int | None]:
    """Numbers of devices; None for one that is named otherwise."""
    return [int(name) if name.strip().isdigit() else None for name in visible.split(",")]


def _gpu_bytes() -> list[int]:
    """Memory of every GPU, as the driver's own tool tells; empty if it is not there."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=QUERY_LIMIT_S, check=True
        ).stdout
        return [int(line) * MIB for line in said.split()]
    except (subprocess.SubprocessError, OSError, ValueError):
        return []  # sizes stay unknown, and the check says so
