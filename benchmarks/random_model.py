"""Models with random weights over the demo's vocabulary, of a size that makes real steps."""

from __future__ import annotations

import shutil
from pathlib import Path

from tokenrouter.configuration.sources import DEMO_MODELS

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
)  # fmt: skip


def build(folder: Path, width: int = 768, layers: int = 12) -> Path:
    """Write a Qwen3 model, by default of 85 million parameters; returns ``folder``."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=320,
        hidden_size=width,
        intermediate_size=8 * width // 3,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=max(1, width // 192),
        head_dim=64,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        eos_token_id=260,
        torch_dtype="float32",
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    for name in TOKENIZER_FILES:
        shutil.copy(DEMO_MODELS / "small" / name, folder / name)
    return folder
