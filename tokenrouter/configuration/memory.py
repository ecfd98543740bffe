"""How much memory a model takes, estimated from the small files of its folder.

Weights: the size of their files, in the chosen precision. KV cache: a key and a value per
layer, head and token. Activations, CUDA graphs and the processes themselves are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenrouter.configuration.model_folder import read_settings, weight_bytes

if TYPE_CHECKING:
    from tokenrouter.configuration.model import ModelConfig

CPU_POOL_TOKENS = 32768
"""KV tokens of a member on a CPU, unless ``max_total_tokens`` says otherwise."""
CPU_POOL_SHARE = 1 / 8
"""The most of the machine's memory that these may take."""

_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Footprint:
    """Of one tensor-parallel rank.

    Attributes:
        precision: of the computation, as SGLang chooses it.
        weights: bytes.
        kv_token: bytes of one token in the KV cache; None: an architecture that stores
            something else.
    """

    precision: str
    weights: int
    kv_token: int | None


def footprint(model: ModelConfig) -> Footprint:
    """What a rank of ``model`` takes.

    Raises:
        ConfigError: its folder cannot be read.
    """
    if model.model_path is None:
        return Footprint("-", 0, 0)
    settings = read_settings(model.model_path)
    stored = str(settings.get("torch_dtype") or settings.get("dtype") or "float32")
    precision = _precision(model.dtype, stored)
    size = weight_bytes(model.model_path)
    if "quantization_config" not in settings and model.sglang.get("quantization") is None:
        size = size * _BYTES[precision] // _BYTES.get(stored, _BYTES[precision])
    text = settings.get("text_config", settings)
    return Footprint(precision, size // model.tp_size, _kv_token(model, text, _BYTES[precision]))


def cpu_pool_tokens(kv_token: int, ram: int) -> int:
    """A KV pool that leaves memory to weights, other members and other programs."""
    return min(CPU_POOL_TOKENS, int(ram * CPU_POOL_SHARE) // kv_token)


def _precision(wanted: str | None, stored: str) -> str:
    if wanted in _BYTES:
        return str(wanted)
    # SGLang's "auto": float32 weights become float16, others stay as they are.
    return "float16" if stored == "float32" or stored not in _BYTES else stored


def _kv_token(model: ModelConfig, settings: dict[str, Any], size: int) -> int | None:
    layers, heads = settings.get("num_hidden_layers"), settings.get("num_attention_heads")
    hidden = settings.get("hidden_size")
    if not (layers and heads and hidden) or "kv_lora_rank" in settings:
        return None
    kv_heads = max(1, int(settings.get("num_key_value_heads") or heads) // model.tp_size)
    head_dim = int(settings.get("head_dim") or hidden // heads)
    if str(model.sglang.get("kv_cache_dtype", "auto")).startswith("fp8"):
        size = 1
    return 2 * int(layers) * kv_heads * head_dim * size
