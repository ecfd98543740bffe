"""CITER's head, against plain functions."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.routers.heads import confidence, head_state
from tokenrouter.errors import ConfigError
from tokenrouter.routers.citer import check_small_model, load


@pytest.mark.parametrize("kind", ["pt", "wrapped", "safetensors"])
def test_the_head_computes_what_the_definition_says(kind: str, tmp_path: Path) -> None:
    state = head_state(24)
    path = tmp_path / ("head.safetensors" if kind == "safetensors" else "head.pt")
    if kind == "safetensors":
        save_file(state, path)
    else:
        torch.save({"state_dict": state} if kind == "wrapped" else state, path)
    hidden = torch.randn(9, 24, generator=torch.Generator().manual_seed(5)) * 2
    head = load(path)
    expected = confidence(state, hidden)
    assert float(expected.max() - expected.min()) > 0.1
    torch.testing.assert_close(head(hidden).double(), expected, atol=1e-6, rtol=0)
    # Evaluation mode: the running statistics, whatever the batch, which is left as it was.
    torch.testing.assert_close(head(hidden[:1]).double(), expected[:1], atol=1e-6, rtol=0)
    head.to("cpu")


def test_what_is_no_head_is_told(tmp_path: Path) -> None:
    path = tmp_path / "head.pt"
    torch.save({"weight": torch.zeros(2, 2)}, path)
    with pytest.raises(ConfigError, match=r"algorithm_args\.head: .*no matrix mlp\.0\.weight"):
        load(path)
    state = head_state(8)
    del state["linear.bias"]
    torch.save(state, path)
    with pytest.raises(ConfigError, match=r"algorithm_args\.head: .*linear\.bias is missing"):
        load(path)


def test_the_small_model_must_be_the_heads(tmp_path: Path) -> None:
    path = tmp_path / "head.pt"
    torch.save(head_state(8), path)
    check_small_model(load(path), 8)
    with pytest.raises(ConfigError, match="hidden size 8, and the one configured has 64"):
        check_small_model(load(path), 64)
