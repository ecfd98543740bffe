"""Random-weight models small enough to build in a test, and what they answer.

Untied embeddings and a wide initialisation make their greedy output wander: a model that
repeats one token for ever would hide any corruption of its KV.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY = 320
EOS = 1
MARGIN = 1e-3
"""The least gap between the two largest logits: float noise is about 1e-5."""


@dataclass(frozen=True)
class Reference:
    """Greedy tokens after a prompt, and the raw logits behind each, by plain recomputation."""

    tokens: list[int]
    logits: torch.Tensor

    @property
    def margin(self) -> float:
        best = self.logits.topk(2, dim=-1).values
        return float((best[:, 0] - best[:, 1]).min())


@dataclass(eq=False)
class TinyModel:
    """A model folder, and the same model in plain Hugging Face code, float32."""

    path: Path
    plain: PreTrainedModel
    references: dict[tuple[int, ...], Reference] = field(default_factory=dict)

    @torch.no_grad()
    def logits(self, tokens: list[int]) -> torch.Tensor:
        """Raw logits after the last of ``tokens``."""
        return self.plain(torch.tensor([tokens])).logits[0, -1]

    def reference(self, prompt: list[int], count: int = 24) -> Reference:
        key = (count, *prompt)
        if key not in self.references:
            tokens, rows = list(prompt), []
            for _ in range(count):
                rows.append(self.logits(tokens))
                tokens.append(int(rows[-1].argmax()))
            self.references[key] = Reference(tokens[len(prompt) :], torch.stack(rows))
        return self.references[key]

    def prompts(self, count: int, seed: int, longest: int = 40) -> list[list[int]]:
        """Random prompts whose references are decided by margins and do not repeat themselves."""
        rng, found = random.Random(seed), []
        while len(found) < count:
            prompt = [rng.randrange(5, VOCABULARY) for _ in range(rng.randint(2, longest))]
            reference = self.reference(prompt)
            if reference.margin >= MARGIN and len(set(reference.tokens)) >= 8:
                found.append(prompt)
        return found


def build_model(folder: Path, architecture: str, seed: int) -> TinyModel:
    """Write a model with ``architecture`` (``qwen3`` or ``llama``) and random weights."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": EOS,
    }
    torch.manual_seed(seed)
    if architecture == "qwen3":
        plain: PreTrainedModel = Qwen3ForCausalLM(Qwen3Config(**sizes))
    else:
        plain = LlamaForCausalLM(LlamaConfig(**sizes))
    plain.float().eval().save_pretrained(folder)
    save_tokenizer(folder)
    return TinyModel(folder, plain)


def save_tokenizer(folder: Path, size: int = VOCABULARY) -> None:
    """A tokenizer of ``size`` words ``w0 w1 ...``."""
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=f"w{EOS}", unk_token="w0")
    tokenizer.save_pretrained(folder)
