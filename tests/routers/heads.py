"""CITER heads with random weights, and what they compute, in plain functions."""

from __future__ import annotations

import torch
from torch.nn.functional import linear


def head_state(hidden: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """A state_dict with the published keys."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "mlp.0.weight": normal(2 * hidden, hidden) * hidden**-0.5,
        "mlp.0.bias": normal(2 * hidden) * 0.1,
        "mlp.1.weight": 1 + normal(2 * hidden) * 0.2,
        "mlp.1.bias": normal(2 * hidden) * 0.2,
        "mlp.1.running_mean": normal(2 * hidden) * 0.2,
        "mlp.1.running_var": 1 + normal(2 * hidden).abs(),
        "mlp.1.num_batches_tracked": torch.tensor(1234),
        "mlp.4.weight": normal(hidden, 2 * hidden) * hidden**-0.5,
        "mlp.4.bias": normal(hidden) * 0.1,
        "linear.weight": normal(1, hidden) * 2 * hidden**-0.5,
        "linear.bias": normal(1) * 0.1,
    }


def confidence(state: dict[str, torch.Tensor], hidden: torch.Tensor) -> torch.Tensor:
    """``[rows]``, float64."""
    d = {name: tensor.double() for name, tensor in state.items()}
    x = linear(hidden.double(), d["mlp.0.weight"], d["mlp.0.bias"])
    x = (x - d["mlp.1.running_mean"]) / (d["mlp.1.running_var"] + 1e-5).sqrt()
    x = (x * d["mlp.1.weight"] + d["mlp.1.bias"]).clamp(min=0)
    x = linear(x, d["mlp.4.weight"], d["mlp.4.bias"])
    return 1 / (1 + torch.exp(-linear(x, d["linear.weight"], d["linear.bias"])[:, 0]))
