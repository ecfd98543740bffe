"""CITER's head (aiming-lab/CITER): how sure is the small model's hidden state?

Linear(h, 2h), batch norm, ReLU, Linear(2h, h), Linear(h, 1), sigmoid, in evaluation mode. Files:
its ``state_dict``, as torch or safetensors; published keys are mlp.0, mlp.1, mlp.4, linear.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from tokenrouter.errors import ConfigError
from tokenrouter.routers.tensors import fill, read_pickled, read_safetensors, unreadable

FIELD = "algorithm_args.head"


class CiterHead(nn.Module):
    """The head of a small model of ``hidden_size``."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.mlp = nn.Sequential(
            nn.Linear(hidden_size, 2 * hidden_size),
            nn.BatchNorm1d(2 * hidden_size),
            nn.ReLU(),
            nn.Dropout(0.0),
            nn.Linear(2 * hidden_size, hidden_size),
        )
        self.linear = nn.Linear(hidden_size, 1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Confidence in (0, 1), ``[rows]``, from hidden states ``[rows, hidden_size]``."""
        return torch.sigmoid(self.linear(self.mlp(hidden))[:, 0])


def load(path: Path | str, field: str = FIELD) -> CiterHead:
    """The head in ``path``; on the CPU, float32, evaluation mode.

    Raises:
        ConfigError: there is none; ``field`` names the setting to change.
    """
    path = Path(path)
    tensors: dict[str, Any]
    if path.suffix == ".safetensors":
        tensors, _ = read_safetensors(path, field)
    else:
        tensors = read_pickled(path, field)
        tensors = tensors.get("state_dict", tensors)
    first = tensors.get("mlp.0.weight")
    if not isinstance(first, torch.Tensor) or first.dim() != 2:
        raise unreadable(field, path, "it has no matrix mlp.0.weight")
    with torch.device("meta"):
        head = CiterHead(first.shape[1])
    fill(head, tensors, path, field)
    return head


def check_small_model(head: CiterHead, hidden_size: int, field: str = FIELD) -> None:
    """Make sure that ``head`` can be evaluated on a small model.

    Raises:
        ConfigError: it was trained on another one.
    """
    if head.hidden_size != hidden_size:
        raise ConfigError(
            f"{field}: the head is for a small model of hidden size {head.hidden_size}, and the "
            f"one configured has {hidden_size}; give the head of this one"
        )
