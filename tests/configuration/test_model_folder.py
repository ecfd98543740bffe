"""What a look at a folder tells about the model in it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.configuration.folders import model_folder
from tokenrouter.config import ModelConfig
from tokenrouter.configuration import preflight
from tokenrouter.configuration.model_folder import check, context_length, weight_bytes
from tokenrouter.errors import ConfigError


def entry(path: Path, **fields: Any) -> ModelConfig:
    """A member ``m`` whose model is at ``path``."""
    return ModelConfig.model_validate({"name": "m", "model_path": path, **fields})


def test_a_good_folder(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model", weights=70)
    (folder / "more.safetensors").write_bytes(b"\0" * 30)
    check(entry(folder, context_length=512))
    assert weight_bytes(folder) == 100


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"models.m.model_path: .* does not exist; give the"):
        check(entry(tmp_path / "none"))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file"):
        check(entry(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"has no config.json, so it is not a model folder"):
        check(entry(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config.json: cannot be read"):
        check(entry(tmp_path))


def test_weights_may_be_random_if_asked_for(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model", weights=0)
    with pytest.raises(ConfigError, match="holds no weights; download them, or set load_format"):
        check(entry(folder))
    check(entry(folder, load_format="dummy"))


@pytest.mark.parametrize(
    ("settings", "length"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({}, 2048),
        ({"max_position_embeddings": 4096, "rope_scaling": {"factor": 4.0}}, 16384),
        (
            {
                "max_position_embeddings": 4096,
                "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 1024},
            },
            4096,
        ),
        (
            {"max_position_embeddings": 4096, "rope_scaling": {"factor": 8, "rope_type": "llama3"}},
            4096,
        ),
        ({"text_config": {"max_position_embeddings": 64}, "max_position_embeddings": 1}, 64),
        ({"seq_length": 128, "max_position_embeddings": 4096}, 128),
    ],
)
def test_context_as_sglang_computes_it(settings: dict[str, Any], length: int) -> None:
    assert context_length(settings) == length


def test_differing_chat_templates_warn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    flags: dict[str, Any] = {"models": {}}
    for name, template in (("one", "A"), ("two", "A"), ("three", "B")):
        folder = model_folder(tmp_path / name)
        (folder / "tokenizer_config.json").write_text(f'{{"chat_template": "{template}"}}')
        flags["models"][name] = {"model_path": folder}
    from tokenrouter.config import load

    load(None, flags, {})
    assert "chat template of three differs from that of one" in caplog.text


def test_an_address_of_another_machine() -> None:
    with pytest.raises(ConfigError, match=r"port: cannot listen on 192.0.2.1:30000"):
        preflight.check_port("192.0.2.1", 30000)
    with pytest.raises(ConfigError, match=r"host: 'no such host' is not an address"):
        preflight.check_port("no such host", 30000)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_position_embeddings": "x"},
        {"num_hidden_layers": [1]},
        {"num_attention_heads": -1},
        {"head_dim": float("inf")},
        {"hidden_size": True},
        {"rope_scaling": "yarn"},
        {"rope_scaling": {"rope_type": "yarn", "factor": "x"}},
        {"text_config": [1]},
    ],
)
def test_values_that_nothing_can_be_computed_from(tmp_path: Path, wrong: dict[str, Any]) -> None:
    folder = model_folder(tmp_path / "model", **wrong)
    with pytest.raises(ConfigError, match=r"config.json: (\w+) is "):
        check(entry(folder))
