"""Logits of hidden states, as the model itself computes them at the end of a forward pass.

Used by `engine.py` for checks of drafts. A few of SGLang's models keep their head elsewhere
(Gemma, Cohere): there no draft can be checked.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsMetadata
from sglang.srt.model_executor.forward_batch_info import ForwardMode


def has_output_head(model: torch.nn.Module) -> bool:
    """Whether `logits_of` can be asked of it."""
    return hasattr(model, "lm_head") and hasattr(model, "logits_processor")


def without_head(model: torch.nn.Module) -> str:
    """Why a model that has none cannot check."""
    return (
        f"{type(model).__name__} keeps its output head where drafts cannot be checked; let another "
        "model check them, or choose an algorithm that does not draft"
    )


def logits_of(model: Any, hidden: torch.Tensor, mode: ForwardMode) -> torch.Tensor:
    """Raw logits of ``hidden`` states after the final norm, ``[rows, hidden_size]``."""
    metadata = LogitsMetadata(mode)
    logits: torch.Tensor = model.logits_processor._get_logits(hidden, model.lm_head, metadata)
    return logits
