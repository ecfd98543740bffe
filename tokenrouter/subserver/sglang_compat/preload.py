"""SGLang as every process of a deployment needs it: importable, patched, its models known.

Called by the zygote before it forks, or, on a GPU, by each process for itself.
"""

from __future__ import annotations

import importlib
import json

from tokenrouter.config import Config
from tokenrouter.subserver.sglang_compat.cpu_imports import prepare_sglang_import
from tokenrouter.subserver.sglang_compat.cpu_patches import apply_cpu_patches
from tokenrouter.subserver.sglang_compat.library_output import redirect_library_output
from tokenrouter.subserver.sglang_compat.model_registry import register_models


def preload(config: Config) -> None:
    """Import SGLang for the front end, and for the members that it runs.

    Raises:
        ConfigError: SGLang has no class for a model's architecture.
    """
    prepare_sglang_import()
    importlib.import_module("tokenrouter.subserver.sglang_compat.serving")
    redirect_library_output()
    paths = [model.model_path for model in config.models if model.engine == "sglang"]
    if paths:
        importlib.import_module("tokenrouter.subserver.sglang_compat.loading")
        apply_cpu_patches()
        files = [path / "config.json" for path in paths if path is not None]
        settings = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        register_models(name for each in settings for name in each.get("architectures", ()))
