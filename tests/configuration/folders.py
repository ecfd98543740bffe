"""Model folders as small as they can be: files that are read before anything is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VOCABULARY = {"a": 0, "b": 1, "c": 2}


def model_folder(
    path: Path,
    vocabulary: Mapping[str, int] | None = None,
    weights: int = 100,
    **settings: Any,
) -> Path:
    """A folder with a config, a tokenizer of ``vocabulary`` and ``weights`` bytes."""
    path.mkdir(parents=True)
    tokens = VOCABULARY if vocabulary is None else dict(vocabulary)
    (path / "config.json").write_text(json.dumps({"max_position_embeddings": 512, **settings}))
    (path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": tokens}}))
    if weights:
        (path / "model.safetensors").write_bytes(b"\0" * weights)
    return path
