"""R2R's neural router (thu-nics/R2R): is the small model's next token critical?

Per position it sees the small model's last hidden state (after the final norm), the token
that it drew, and its largest raw logits, or some of these. A trunk of pre-norm MLP blocks ends in
one output (a logit) or three (match, mismatch, divergent). Names of parameters are those of the
official checkpoints, whose layout they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

HIDDEN, TOKEN, LOGITS = "hidden_states", "token", "logits"
"""What a router may see; the official ``input_type``."""
DIVERGENT = 2
"""The critical one of three classes."""


@dataclass(frozen=True, slots=True)
class ModelType:
    """A class of the official code: what it sees, and whether it tells several classes."""

    inputs: tuple[str, ...]
    classes: bool = False


MODEL_TYPES: Mapping[str, ModelType] = {
    "HiddenStatesTokenLMHeadLogitsClassifier": ModelType((HIDDEN, TOKEN, LOGITS)),
    "HiddenStatesTokenLMHeadClassifier": ModelType((HIDDEN, TOKEN)),
    "HiddenStatesLogitsClassifier": ModelType((HIDDEN, LOGITS)),
    "HiddenStatesClassifier": ModelType((HIDDEN,)),
    "LogitsClassifier": ModelType((LOGITS,)),
    "MultiClassHiddenStatesClassifier": ModelType((HIDDEN,), classes=True),
    "MultiClassLogitsClassifier": ModelType((LOGITS,), classes=True),
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """Everything that decides the shapes of a router, and what it computes from them.

    ``hidden_size``: of the small model, also of its embedding. ``logits_size``: how many of the
    largest logits it sees. ``widths``: of the trunk's blocks. ``outputs``: 1, or classes.
    ``normalize``: hidden state and embedding pass a layer norm, the logits a softmax.
    ``ends_in_softmax``: classes pass a softmax in the network, besides the one outside.
    """

    model_type: str
    hidden_size: int
    logits_size: int = 100
    widths: tuple[int, ...] = (1024,) * 6
    expansion: int = 4
    outputs: int = 1
    normalize: bool = False
    dropout: float = 0.1
    ends_in_softmax: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """What it sees, in the order of concatenation."""
        return MODEL_TYPES[self.model_type].inputs


class Block(nn.Module):
    """x + MLP(LN(x)); where the width changes, x is projected."""

    def __init__(self, width: int, out: int, expansion: int, dropout: float) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, expansion * width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(expansion * width, out),
            nn.Dropout(dropout),
        )
        self.dim_change = nn.Linear(width, out) if width != out else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[rows, width]`` to ``[rows, out]``."""
        changed: torch.Tensor = self.dim_change(x) + self.mlp(self.layer_norm(x))
        return changed


class Trunk(nn.Module):
    """The blocks; the last one keeps its width."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        widths = (*shape.widths, shape.widths[-1])
        self.input_projection = nn.Linear(widths[0], widths[0])
        self.blocks = nn.ModuleList(
            Block(width, out, shape.expansion, shape.dropout) for width, out in pairwise(widths)
        )
        last = [nn.LayerNorm(widths[-1]), nn.Linear(widths[-1], shape.outputs)]
        if shape.ends_in_softmax:
            last.append(nn.Softmax(dim=-1))
        self.output_layer = nn.Sequential(*last)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[rows, widths[0]]`` to ``[rows, outputs]``."""
        x = self.input_projection(x)
        for block in self.blocks:
            x = block(x)
        outputs: torch.Tensor = self.output_layer(x)
        return outputs


class RouterNetwork(nn.Module):
    """The network; the token comes embedded by the small model, whose embedding is not its own."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = shape = architecture
        inputs, hidden, first = shape.inputs, shape.hidden_size, shape.widths[0]
        alone = len(inputs) == 1
        if shape.normalize and HIDDEN in inputs:
            norm = nn.LayerNorm(hidden)
            setattr(self, "layer_norm" if alone else "layer_norm_hidden_states", norm)
        if shape.normalize and TOKEN in inputs:
            self.layer_norm_token = nn.LayerNorm(hidden)
        if LOGITS in inputs:
            self.logits_projection = nn.Linear(shape.logits_size, first if alone else hidden)
        if not alone:
            self.combined_projection = nn.Linear(len(inputs) * hidden, first)
        elif HIDDEN in inputs:
            self.hidden_states_projection = nn.Linear(hidden, first)
        self.backbone = Trunk(shape)

    def forward(
        self,
        hidden: torch.Tensor | None = None,
        embedded: torch.Tensor | None = None,
        logits: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Outputs ``[rows, outputs]``; what the router does not see is not looked at.

        Args:
            hidden: last hidden states, ``[rows, hidden_size]``.
            embedded: the small model's embedding of its tokens, ``[rows, hidden_size]``.
            logits: the largest raw logits, descending, ``[rows, logits_size]``.
        """
        inputs, parts = self.architecture.inputs, []
        if HIDDEN in inputs:
            parts.append(self._normalized(hidden, HIDDEN))
        if TOKEN in inputs:
            parts.append(self._normalized(embedded, TOKEN))
        if LOGITS in inputs:
            parts.append(self.logits_projection(self._normalized(logits, LOGITS)))
        if len(parts) > 1:
            x = self.combined_projection(torch.cat(parts, dim=-1))
        elif HIDDEN in inputs:
            x = self.hidden_states_projection(parts[0])
        else:
            x = parts[0]
        outputs: torch.Tensor = self.backbone(x)
        return outputs

    def _normalized(self, features: torch.Tensor | None, what: str) -> torch.Tensor:
        if features is None:
            raise ValueError(f"{self.architecture.model_type} needs {what}")
        if not self.architecture.normalize:
            return features
        if what == LOGITS:
            return features.softmax(dim=-1)
        alone = len(self.architecture.inputs) == 1
        normalized: torch.Tensor = getattr(self, "layer_norm" if alone else f"layer_norm_{what}")(
            features
        )
        return normalized

    def probability(
        self,
        hidden: torch.Tensor | None = None,
        embedded: torch.Tensor | None = None,
        logits: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """How probably each row is critical, ``[rows]``; arguments as `forward`."""
        return critical(self(hidden, embedded, logits))


def critical(outputs: torch.Tensor) -> torch.Tensor:
    """The probability of being critical, ``[rows]``, from a router's outputs."""
    if outputs.shape[1] == 1:
        return torch.sigmoid(outputs[:, 0])
    return torch.softmax(outputs, dim=-1)[:, DIVERGENT]
