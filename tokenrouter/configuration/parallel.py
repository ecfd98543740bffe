"""Whether a model can be split into its tensor-parallel ranks, and on which devices they run.

Judged from the small files of a model folder, without torch. Used by `preflight.py` and by
the check of what a machine has.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tokenrouter.configuration.model_folder import read_settings
from tokenrouter.errors import ConfigError

if TYPE_CHECKING:
    from tokenrouter.configuration.model import ModelConfig

GPUS = Path("/proc/driver/nvidia/gpus")
"""The kernel's driver has a folder here for each GPU of the machine."""


def check(model: ModelConfig) -> None:
    """Make sure that every rank gets the same number of attention heads.

    Key-value heads may be fewer than ranks, which then share copies of them.

    Raises:
        ConfigError: the heads of the model cannot be split so.
    """
    if model.tp_size == 1 or model.model_path is None:
        return
    settings = read_settings(model.model_path)
    settings = settings.get("text_config", settings)
    heads = int(settings.get("num_attention_heads") or 0)
    kv_heads = int(settings.get("num_key_value_heads") or heads)
    if not heads:
        raise ConfigError(
            f"models.{model.name}.tp_size: {model.model_path / 'config.json'} has no "
            "num_attention_heads, so that nothing can be split; set tp_size: 1"
        )
    if not _splits(heads, kv_heads, model.tp_size):
        possible = [n for n in range(1, heads + 1) if _splits(heads, kv_heads, n)]
        raise ConfigError(
            f"models.{model.name}.tp_size: {heads} attention heads ({kv_heads} for keys and "
            f"values) cannot be split evenly among {model.tp_size} ranks; set one of "
            f"{', '.join(map(str, possible))}"
        )


def _splits(heads: int, kv_heads: int, ranks: int) -> bool:
    return heads % ranks == 0 and (kv_heads % ranks == 0 or ranks % kv_heads == 0)


def devices(model: ModelConfig) -> range:
    """The GPUs of the model's ranks, in order, as CUDA numbers them."""
    first = int(model.sglang.get("base_gpu_id", 0))
    step = int(model.sglang.get("gpu_id_step", 1))
    return range(first, first + step * model.tp_size, step)


def check_devices(model: ModelConfig, count: int) -> None:
    """Make sure that a machine with ``count`` visible GPUs has those of all ranks.

    Raises:
        ConfigError: it has not.
    """
    wanted = devices(model)
    if wanted[-1] >= count:
        raise ConfigError(
            f"models.{model.name}.tp_size: {model.tp_size} ranks need the GPUs "
            f"{', '.join(map(str, wanted))}, and there are {count}; lower tp_size or base_gpu_id"
        )


def visible_gpus(visible: str | None, gpus: Path = GPUS) -> int:
    """How many GPUs this process may use; ``visible``: ``CUDA_VISIBLE_DEVICES``, if set."""
    there = sum(1 for _ in gpus.iterdir()) if gpus.is_dir() else 0
    if visible is None:
        return there
    # As CUDA reads it: up to the first entry that is no device.
    named = [entry.strip() for entry in visible.split(",")]
    bad = (i for i, entry in enumerate(named) if not entry or entry.startswith("-"))
    return min(there, next(bad, len(named)))
