"""What a zygote holds when it forks: SGLang, the models' classes, and one thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokenrouter.config import Config

SCRIPT = """
import os, sys
from tokenrouter.config import Config
from tokenrouter.errors import ConfigError
from tokenrouter.subserver.sglang_compat.preload import preload

for config in sys.argv[1:]:
    try:
        preload(Config.model_validate_json(config))
    except ConfigError as error:
        print(error)
print(len(os.listdir("/proc/self/task")), "thread")
for name in ("qwen3", "llama"):
    print(name, f"sglang.srt.models.{name}" in sys.modules)
"""


def config(folder: Path, architecture: str) -> str:
    """A deployment of one model of this architecture, as JSON."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    models = [{"name": "model", "model_path": folder}]
    return Config.model_validate({"models": models}).model_dump_json()


@pytest.mark.timeout(120)
def test_preload(tmp_path: Path) -> None:
    configs = [config(tmp_path / name, name) for name in ("Qwen3ForCausalLM", "NoSuchModel")]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    said = subprocess.check_output(
        [sys.executable, "-c", SCRIPT, *configs], text=True, env=environment
    )
    assert said.splitlines() == [
        "SGLang has no model class for 'NoSuchModel'",
        "1 thread",
        "qwen3 True",
        "llama False",
    ]
