"""Folders that look like Qwen3's, with files of the right size that take no space."""

from __future__ import annotations

import os
from pathlib import Path

from tests.configuration.folders import model_folder

SHAPES = {
    "0.6B": (1_503_000_000, 1024, 28, 16),
    "1.7B": (4_063_000_000, 2048, 28, 16),
    "4B": (8_045_000_000, 2560, 36, 32),
    "8B": (16_382_000_000, 4096, 36, 32),
    "32B": (65_500_000_000, 5120, 64, 64),
}
"""Bytes of the weights, hidden size, layers, attention heads."""


def qwen3_folder(parent: Path, size: str) -> Path:
    """``parent``/Qwen3-SIZE: everything but weights and a real vocabulary."""
    weights, hidden, layers, heads = SHAPES[size]
    folder = model_folder(
        parent / f"Qwen3-{size}",
        weights=0,
        architectures=["Qwen3ForCausalLM"],
        max_position_embeddings=40960,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        torch_dtype="bfloat16",
    )
    with (folder / "model.safetensors").open("wb") as file:
        os.truncate(file.fileno(), weights)
    return folder
