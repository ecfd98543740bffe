"""Draws by inversion: used by `seeded.py`, `proposals.py` and `acceptance.py`."""

from __future__ import annotations

import torch


def pick(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """The column at which each row's cumulative weight passes its uniform number (float64).

    Weights add up in the order of columns, not of their size, so that float noise cannot
    exchange two likely tokens. No row may be all zeros.
    """
    cumulative = weights.double().cumsum(dim=-1)
    total = cumulative[:, -1:]
    target = uniforms.unsqueeze(1) * total
    # Below the total, where rounding reached it: the search must end at a possible token.
    target = target.minimum(torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target, right=True).squeeze(1)
