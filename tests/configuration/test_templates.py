"""Templates that SGLang can load, and others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenrouter.config import ModelConfig
from tokenrouter.configuration.templates import KEYS, SOURCES, built_in, check
from tokenrouter.errors import ConfigError


def entry(argument: str, value: Any) -> ModelConfig:
    """A member ``m`` with one template."""
    return ModelConfig.model_validate({"name": "m", "model_path": "m", argument: str(value)})


def test_the_names_are_those_that_sglang_has() -> None:
    assert {"llama-2", "chatml"} <= set(built_in("chat_template"))
    assert "qwen_coder" in built_in("completion_template")
    for argument in SOURCES:
        for name in built_in(argument):
            check(entry(argument, name))


@pytest.mark.parametrize("argument", SOURCES)
def test_files(tmp_path: Path, argument: str) -> None:
    path = tmp_path / "template.json"
    path.write_text(json.dumps(dict.fromkeys(KEYS[argument], "x")))
    check(entry(argument, path))
    path.write_text("{}")
    with pytest.raises(ConfigError, match=rf"models.m.{argument}: .*template.json has no "):
        check(entry(argument, path))
    path.write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        check(entry(argument, path))


def test_a_jinja_file(tmp_path: Path) -> None:
    path = tmp_path / "template.jinja"
    path.write_text("{{ messages }}")
    check(entry("chat_template", path))
    with pytest.raises(ConfigError, match=r"neither a \.json file"):
        check(entry("completion_template", path))
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        check(entry("chat_template", path))


@pytest.mark.parametrize("value", ["/dev/zero", "nobody-has-this", "a" * 5000, "a\0", "/tmp"])
@pytest.mark.parametrize("argument", SOURCES)
def test_what_is_no_template(argument: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"models.m.{argument}: .* is neither a "):
        check(entry(argument, value))
