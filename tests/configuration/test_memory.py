"""Estimates of memory, against what models are known to take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.configuration.qwen3 import qwen3_folder
from tokenrouter.config import ModelConfig
from tokenrouter.configuration.memory import CPU_POOL_TOKENS, cpu_pool_tokens, footprint
from tokenrouter.configuration.sources import DEMO_MODELS

pytestmark = pytest.mark.timeout(20)


def entry(path: Path, **fields: Any) -> ModelConfig:
    return ModelConfig.model_validate({"name": "m", "model_path": path, **fields})


def test_a_model_split_in_two(tmp_path: Path) -> None:
    folder = qwen3_folder(tmp_path, "32B")
    whole, half = footprint(entry(folder)), footprint(entry(folder, tp_size=2))
    assert (whole.precision, whole.weights) == ("bfloat16", 65_500_000_000)
    # 64 layers, keys and values of 8 heads of 128 numbers of 2 bytes.
    assert whole.kv_token == 64 * 2 * 8 * 128 * 2
    assert (half.weights, half.kv_token) == (whole.weights // 2, whole.kv_token // 2)
    # More ranks than key-value heads: each has a copy of one.
    assert footprint(entry(folder, tp_size=16)).kv_token == whole.kv_token // 8


@pytest.mark.parametrize(
    ("fields", "settings", "precision", "weights", "kv_token"),
    [
        ({}, {}, "bfloat16", 1000, 64),
        ({"dtype": "float32"}, {}, "float32", 2000, 128),
        ({"kv_cache_dtype": "fp8_e5m2"}, {}, "bfloat16", 1000, 32),
        ({}, {"torch_dtype": "float32"}, "float16", 500, 64),  # SGLang's "auto"
        ({"dtype": "float32"}, {"quantization_config": {}}, "float32", 1000, 128),
        ({}, {"kv_lora_rank": 512}, "bfloat16", 1000, None),
        ({}, {"num_hidden_layers": None}, "bfloat16", 1000, None),
    ],
)
def test_precisions(
    tmp_path: Path,
    fields: dict[str, Any],
    settings: dict[str, Any],
    precision: str,
    weights: int,
    kv_token: int | None,
) -> None:
    shape = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    (tmp_path / "config.json").write_text(
        json.dumps({**shape, "hidden_size": 16, "torch_dtype": "bfloat16", **settings})
    )
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 1000)
    size = footprint(entry(tmp_path, **fields))
    assert (size.precision, size.weights, size.kv_token) == (precision, weights, kv_token)


def test_the_pool_of_a_cpu() -> None:
    demo = footprint(entry(DEMO_MODELS / "small", dtype="float32"))
    assert demo.kv_token is not None
    assert cpu_pool_tokens(demo.kv_token, 2**34) == CPU_POOL_TOKENS
    assert cpu_pool_tokens(2**20, 2**30) == 128
