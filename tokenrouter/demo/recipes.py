"""The two models of the pair: their shapes, and how long each is trained.

The gap between them is set by width and by training: the small model's training ends once it writes
the template well and about half of the answers are right; the large one's goes on to the end.
`evaluate` finds 0.546 and 0.998 of 1,000 held-out answers wholly right for the published weights,
which these recipes give with seed 0. Another processor rounds differently, and so ends elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from tokenrouter.demo.tokenizer import END_ID, MAX_LENGTH, PAD_ID, save_tokenizer

VOCABULARY = 320
HEAD_SIZE = 64
KV_HEADS = 2
MODELS_FOLDER = Path(__file__).parent / "models"


class ModelName(StrEnum):
    """The members of the demo pair, as the command lines call them."""

    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True)
class Recipe:
    """A model's shape (sizes in numbers of weights or heads) and its training (in steps)."""

    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    batch_size: int
    steps: int


RECIPES = {
    ModelName.SMALL: Recipe(64, 160, layers=2, heads=2, batch_size=32, steps=760),
    ModelName.LARGE: Recipe(128, 384, layers=3, heads=4, batch_size=32, steps=1000),
}


def build_model(recipe: Recipe, seed: int) -> Qwen3ForCausalLM:
    """A model of this shape with random float32 weights.

    The vocabulary is the tokenizer's, padded to a multiple of 64; the number of key-value heads is
    even and heads are 64 wide, so that tensor parallelism and CUDA attention kernels can serve it.
    """
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_SIZE,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=END_ID,
        pad_token_id=PAD_ID,
        torch_dtype="float32",
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=END_ID, pad_token_id=PAD_ID)
    return model


def save_model(model: Qwen3ForCausalLM, folder: Path) -> None:
    """Write a folder that transformers and SGLang load: configuration, weights and tokenizer."""
    model.save_pretrained(folder)
    save_tokenizer(folder)
