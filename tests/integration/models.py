"""Models for integration tests: the demo pair, and a Llama trio with random weights.

Random weights with tied embeddings repeat one token for ever, and then nothing is tested:
the trio is untied, with a variance at which greedy output keeps changing.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import tokenrouter.demo

DEMO = Path(tokenrouter.demo.__file__).parent / "models"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
TRIO = {"tiny": (48, 1), "middle": (64, 2), "big": (96, 2)}
"""Name to (width, layers)."""
TRIO_EOS = (11, 22, 33)
"""Each member's own end of sequence."""


def build_trio(folder: Path) -> dict[str, Path]:
    """Three Llama models over the demo's vocabulary, smallest first."""
    return {
        name: build_llama(folder / name, *shape, seed=i)
        for i, (name, shape) in enumerate(TRIO.items())
    }


def build_llama(folder: Path, width: int, layers: int, seed: int) -> Path:
    """A Llama model with random weights; ``seed`` also picks its end of sequence."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.4,
        tie_word_embeddings=False,
        eos_token_id=TRIO_EOS[seed],
        torch_dtype="float32",
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in TOKENIZER_FILES:
        shutil.copy(DEMO / "small" / name, folder / name)
    return folder
