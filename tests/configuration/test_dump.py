"""The configuration in force, and where it is from."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tokenrouter.cli_flags import gather
from tokenrouter.config import load, read, served
from tokenrouter.configuration.dump import dump

pytestmark = pytest.mark.timeout(20)


def test_what_is_dumped_can_be_loaded_again(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    models = [
        {"name": "a", "engine": "timed", "step_ms": {1: 2.5, 8: 3}},
        {"name": "b", "model_path": "demo:small", "disable_radix_cache": True},
    ]
    path.write_text(yaml.safe_dump({"port": 5, "models": models, "algorithm": "random"}))
    flags = gather({"served_name": "on", "tp": ["b=1"], "set": ["a.max_batch=3"]})
    variables = {"TOKENROUTER_MODELS_B_DTYPE": "float32", "TOKENROUTER_API_KEY": "sesame"}
    reading = read(path, flags, variables)
    text = dump(served(reading), reading)
    assert "sesame" not in text
    written = path.read_text().splitlines()
    for line in (
        f"port: 5  # {path}:{written.index('port: 5') + 1}",
        'host: "127.0.0.1"  # default',
        'served_name: "on"  # --served-name',
        "# api_key: not shown  # TOKENROUTER_API_KEY",
        f'- name: "a"  # {path}:{written.index("  name: a") + 1}',
        "  max_batch: 3  # --set",
        "  tp_size: 1  # --tp",
        '  dtype: "float32"  # TOKENROUTER_MODELS_B_DTYPE',
        f"  disable_radix_cache: true  # {path}:{written.index('- disable_radix_cache: true') + 1}",
        '  threshold: "auto"  # default',
    ):
        assert line in text.splitlines()
    again = tmp_path / "again.yaml"
    again.write_text(text)
    assert load(again, None, {"TOKENROUTER_API_KEY": "sesame"}) == reading.config


def test_values_that_json_has_no_word_for(tmp_path: Path) -> None:
    flags = gather({"router_threshold": "inf", "algorithm": "tests.subserver.algorithms:Wander"})
    path = tmp_path / "file.yaml"
    path.write_text("models: [{name: a, engine: timed, step_ms: 1}]")
    reading = read(path, flags, {})
    (tmp_path / "again.yaml").write_text(dump(served(reading), reading))
    assert load(tmp_path / "again.yaml", None, {}) == reading.config
