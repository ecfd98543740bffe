"""Whether a model can be split among ranks, and whether the machine has their devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.configuration.folders import model_folder
from tokenrouter.configuration.model import ModelConfig
from tokenrouter.configuration.parallel import check, check_devices, devices, visible_gpus
from tokenrouter.errors import ConfigError


def model(path: Path, tp_size: int, settings: dict[str, Any], **entry: Any) -> ModelConfig:
    """A model of ``tp_size`` ranks whose ``config.json`` says ``settings``."""
    folder = model_folder(path / "model", **settings)
    return ModelConfig.model_validate(
        {"name": "big", "model_path": folder, "tp_size": tp_size, **entry}
    )


@pytest.mark.parametrize(
    ("heads", "kv_heads", "ranks"),
    [(32, 8, 1), (32, 8, 2), (32, 8, 8), (32, 8, 16), (4, 2, 4), (64, None, 64), (14, 2, 2)],
)
def test_even_splits(tmp_path: Path, heads: int, kv_heads: int | None, ranks: int) -> None:
    settings = {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    check(model(tmp_path, ranks, settings))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "ranks", "possible"),
    [
        (32, 8, 3, "1, 2, 4, 8, 16, 32"),
        (14, 2, 4, "1, 2, 14"),
        (12, 8, 3, "1, 2, 4"),
        (2, 2, 4, "1, 2"),
    ],
)
def test_uneven_splits(
    tmp_path: Path, heads: int, kv_heads: int, ranks: int, possible: str
) -> None:
    settings = {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    with pytest.raises(ConfigError) as error:
        check(model(tmp_path, ranks, settings))
    assert str(error.value) == (
        f"models.big.tp_size: {heads} attention heads ({kv_heads} for keys and values) cannot be "
        f"split evenly among {ranks} ranks; set one of {possible}"
    )


def test_heads_of_the_text_model_count(tmp_path: Path) -> None:
    check(model(tmp_path, 2, {"text_config": {"num_attention_heads": 4}, "num_attention_heads": 3}))


def test_a_model_without_heads_is_not_split(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tp_size: .*config.json has no num_attention_heads"):
        check(model(tmp_path, 2, {}))
    path = model_folder(tmp_path / "one")
    assert json.loads((path / "config.json").read_text()) == {"max_position_embeddings": 512}
    check(ModelConfig.model_validate({"name": "big", "model_path": path}))


def test_devices_of_the_ranks(tmp_path: Path) -> None:
    heads = {"num_attention_heads": 8}
    plain = model(tmp_path / "a", 2, heads)
    spread = model(tmp_path / "b", 4, heads, base_gpu_id=1, gpu_id_step=2)
    assert list(devices(plain)) == [0, 1]
    assert list(devices(spread)) == [1, 3, 5, 7]
    check_devices(plain, 2)
    check_devices(spread, 8)
    with pytest.raises(ConfigError, match=r"tp_size: 2 ranks need the GPUs 0, 1, and there are 1;"):
        check_devices(plain, 1)
    with pytest.raises(ConfigError, match=r"big.tp_size: 4 ranks need the GPUs 1, 3, 5, 7, and"):
        check_devices(spread, 7)


def test_gpus_that_cuda_would_see(tmp_path: Path) -> None:
    assert visible_gpus(None, tmp_path / "none") == 0
    for i in range(4):
        (tmp_path / f"0000:0{i}:00.0").mkdir()
    assert visible_gpus(None, tmp_path) == 4
    assert visible_gpus("2,3", tmp_path) == 2
    assert visible_gpus("0,1,-1,2", tmp_path) == 2
    assert visible_gpus("", tmp_path) == 0
    assert visible_gpus("0,1,2,3,4,5", tmp_path) == 4
