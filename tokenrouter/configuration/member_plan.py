"""What one member would be on a machine: its devices, its pool, its memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tokenrouter.configuration import memory, model_folder, parallel
from tokenrouter.configuration.machine import Machine
from tokenrouter.configuration.model import TIMED_CONTEXT_LENGTH, TIMED_POOL_TOKENS

if TYPE_CHECKING:
    from tokenrouter.configuration.model import ModelConfig


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """Estimates of what a member takes. Bytes are of one of its ``tp_size`` ranks.

    Attributes:
        gpus: of its ranks, in order; empty: it runs on the CPU.
        pool_tokens: of the KV cache; None: the engine decides when it has loaded.
        kv_token: bytes of one token there; None: not known.
        fraction: of a GPU's memory that it may take for weights and KV cache, if set.
    """

    name: str
    engine: str
    model_path: Path | None
    precision: str
    gpus: tuple[int, ...]
    tp_size: int
    threshold: int | Literal["auto"]
    max_batch: int
    context_length: int
    weights: int
    pool_tokens: int | None
    kv_token: int | None
    fraction: float | None

    @property
    def kv_bytes(self) -> int | None:
        """Of the KV cache; None: not known."""
        if self.pool_tokens is None or self.kv_token is None:
            return None
        return self.pool_tokens * self.kv_token

    @property
    def needs(self) -> int:
        """Bytes that a rank takes at least."""
        return self.weights + (self.kv_bytes or 0)

    @property
    def longest(self) -> int:
        """Tokens of the longest request it can hold."""
        return min(self.context_length, self.pool_tokens or self.context_length)


def plan(model: ModelConfig, machine: Machine, share: float | None = None) -> MemberPlan:
    """What ``model`` would be on ``machine``.

    Args:
        share: its ``mem_fraction_static``, if it has none itself.

    Raises:
        ConfigError: a file of its folder cannot be read.
    """
    device = model.sglang.get("device") or ("cuda" if machine.gpus else "cpu")
    on_gpu = model.engine == "sglang" and device != "cpu"
    gpus = tuple(parallel.devices(model)) if on_gpu else ()
    size = memory.footprint(model)
    given = model.sglang.get("mem_fraction_static")
    fraction = share if given is None else given
    pool = model.max_total_tokens
    if pool is None:
        least = _least(gpus, machine)
        if model.engine == "timed":
            pool = TIMED_POOL_TOKENS
        elif not on_gpu and size.kv_token:
            pool = memory.cpu_pool_tokens(size.kv_token, machine.ram)
        elif fraction is not None and least is not None and size.kv_token:
            pool = max(0, int(least * fraction) - size.weights) // size.kv_token
    return MemberPlan(
        name=model.name,
        engine=model.engine,
        model_path=model.model_path,
        precision=size.precision,
        gpus=gpus,
        tp_size=model.tp_size,
        threshold=model.threshold,
        max_batch=model.max_batch,
        context_length=_context_length(model),
        weights=size.weights,
        pool_tokens=pool,
        kv_token=size.kv_token,
        fraction=fraction,
    )


def _least(gpus: tuple[int, ...], machine: Machine) -> int | None:
    """Memory of the smallest of the GPUs, if all are there and known."""
    there = [machine.gpus[gpu] for gpu in gpus if gpu < len(machine.gpus)]
    sizes = [size for size in there if size is not None]
    return min(sizes) if gpus and len(sizes) == len(gpus) else None


def _context_length(model: ModelConfig) -> int:
    if model.context_length is not None:
        return model.context_length
    if model.model_path is None:
        return TIMED_CONTEXT_LENGTH
    return model_folder.context_length(model_folder.read_settings(model.model_path))
