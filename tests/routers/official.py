"""Checkpoints in R2R's official layout, and what their network computes: plain functions.

Nothing here uses `tokenrouter.routers`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import gelu, layer_norm, linear

COMBINED = {
    "HiddenStatesTokenLMHeadLogitsClassifier": ["hidden_states", "token", "logits"],
    "HiddenStatesTokenLMHeadClassifier": ["hidden_states", "token"],
    "HiddenStatesLogitsClassifier": ["hidden_states", "logits"],
}
SINGLE = {
    "HiddenStatesClassifier": ["hidden_states"],
    "LogitsClassifier": ["logits"],
    "MultiClassHiddenStatesClassifier": ["hidden_states"],
    "MultiClassLogitsClassifier": ["logits"],
}
INPUTS = {**COMBINED, **SINGLE}


def checkpoint(
    model_type: str = "HiddenStatesTokenLMHeadLogitsClassifier",
    hidden: int = 12,
    logits: int = 10,
    widths: tuple[int, ...] = (16, 16, 16),
    *,
    normalize: bool = False,
    classes: int = 1,
    expansion: int = 4,
    threshold: float | None = 0.406,
    softmax: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """The dictionary that ``torch.save`` is given, with random weights."""
    inputs = INPUTS[model_type]
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, torch.Tensor] = {}

    def add_linear(name: str, wide: int, out: int) -> None:
        state[f"{name}.weight"] = torch.randn(out, wide, generator=generator) * wide**-0.5
        state[f"{name}.bias"] = torch.randn(out, generator=generator) * 0.3

    def add_norm(name: str, size: int) -> None:
        state[f"{name}.weight"] = 1 + torch.randn(size, generator=generator) * 0.2
        state[f"{name}.bias"] = torch.randn(size, generator=generator) * 0.2

    if len(inputs) > 1:
        if "logits" in inputs:
            add_linear("logits_projection", logits, hidden)
        add_linear("combined_projection", len(inputs) * hidden, widths[0])
        if normalize:
            add_norm("layer_norm_hidden_states", hidden)
            if "token" in inputs:
                add_norm("layer_norm_token", hidden)
    elif inputs == ["logits"]:
        add_linear("logits_projection", logits, widths[0])
    else:
        add_linear("hidden_states_projection", hidden, widths[0])
        if normalize:
            add_norm("layer_norm", hidden)
    add_linear("backbone.input_projection", widths[0], widths[0])
    for i, (wide, out) in enumerate(zip(widths, (*widths[1:], widths[-1]), strict=True)):
        add_norm(f"backbone.blocks.{i}.layer_norm", wide)
        add_linear(f"backbone.blocks.{i}.mlp.0", wide, expansion * wide)
        add_linear(f"backbone.blocks.{i}.mlp.3", expansion * wide, out)
        if wide != out:
            add_linear(f"backbone.blocks.{i}.dim_change", wide, out)
    add_norm("backbone.output_layer.0", widths[-1])
    add_linear("backbone.output_layer.1", widths[-1], classes)

    arguments: dict[str, Any] = {
        "hidden_dims": list(widths),
        "expansion_factor": expansion,
        "dropout_rate": 0.1,
        "use_position_embedding": False,
        "normalize_input": normalize,
        "max_position_embeddings": 1024,
    }
    if "hidden_states" in inputs:
        arguments["hidden_states_size"] = 2048  # as the official Qwen3 configurations claim
    if "logits" in inputs:
        arguments["logits_size"] = logits
    if "token" in inputs:
        arguments |= {"pretrained_model_name": "Qwen/Qwen3-0.6B", "freeze_lm_head": True}
    if model_type.startswith("MultiClass"):
        arguments |= {"num_classes": classes, "apply_softmax": softmax}
    elif len(inputs) == 1:
        arguments["output_dim"] = classes
    return {
        "model_type": model_type,
        "init_args": arguments,
        "common_args": {"threshold": threshold, "input_type": inputs},
        "model_specific_args": {},
        "state_dict": state,
    }


def write(path: Path, content: dict[str, Any]) -> Path:
    torch.save(content, path)
    return path


def probability(
    content: dict[str, Any],
    hidden: torch.Tensor,
    embedded: torch.Tensor,
    logits: torch.Tensor,
) -> torch.Tensor:
    """Of being critical, ``[rows]``, float64."""
    state = {name: tensor.double() for name, tensor in content["state_dict"].items()}
    arguments = content["init_args"]
    inputs = INPUTS[content["model_type"]]
    hidden, embedded, logits = hidden.double(), embedded.double(), logits.double()

    def apply(name: str, x: torch.Tensor) -> torch.Tensor:
        return linear(x, state[f"{name}.weight"], state[f"{name}.bias"])

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"])

    if arguments["normalize_input"]:
        alone = len(inputs) == 1
        if "hidden_states" in inputs:
            hidden = norm("layer_norm" if alone else "layer_norm_hidden_states", hidden)
        if "token" in inputs:
            embedded = norm("layer_norm_token", embedded)
        logits = logits.exp() / logits.exp().sum(-1, keepdim=True)
    if inputs == ["logits"]:
        x = apply("logits_projection", logits)
    elif inputs == ["hidden_states"]:
        x = apply("hidden_states_projection", hidden)
    else:
        parts = [hidden]
        if "token" in inputs:
            parts.append(embedded)
        if "logits" in inputs:
            parts.append(apply("logits_projection", logits))
        x = apply("combined_projection", torch.cat(parts, dim=-1))
    x = apply("backbone.input_projection", x)
    for i in range(len(arguments["hidden_dims"])):
        block = f"backbone.blocks.{i}"
        inner = apply(
            f"{block}.mlp.3", gelu(apply(f"{block}.mlp.0", norm(f"{block}.layer_norm", x)))
        )
        changes = f"{block}.dim_change.weight" in state
        x = inner + (apply(f"{block}.dim_change", x) if changes else x)
    out = apply("backbone.output_layer.1", norm("backbone.output_layer.0", x))
    if out.shape[1] == 1:
        return 1 / (1 + torch.exp(-out[:, 0]))
    if arguments.get("apply_softmax"):
        out = torch.softmax(out, dim=-1)
    return torch.softmax(out, dim=-1)[:, 2]
