"""Whether a folder holds a model that SGLang can load, judged from its small files."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenrouter.configuration import overrides
from tokenrouter.errors import ConfigError

if TYPE_CHECKING:
    from tokenrouter.configuration.model import ModelConfig

WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
CONTEXT_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
"""Where SGLang looks for a model's longest context, in this order."""
SIZES = (
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_size",
    "head_dim",
)
"""What its memory and its ranks are computed from."""


def check(model: ModelConfig) -> None:
    """Look at what does not need loading.

    Raises:
        ConfigError: no model there, or its context is shorter than ``context_length``.
    """
    field, path = f"models.{model.name}.model_path", model.model_path
    if path is None:
        return
    check_folder(field, path, random_weights=model.sglang.get("load_format") == "dummy")
    settings = read_settings(path)
    field = f"models.{model.name}.json_model_override_args"
    overrides.check(field, model.sglang.get("json_model_override_args"), settings)
    longest = context_length(settings)
    if model.context_length is not None and model.context_length > longest:
        raise ConfigError(
            f"models.{model.name}.context_length: {model.context_length} is more than the "
            f"{longest} tokens this model was made for; lower it"
        )


def check_folder(field: str, path: Path, random_weights: bool) -> None:
    """Look at the folder of a model, which ``field`` names.

    Raises:
        ConfigError: no model there, or one without weights that needs them.
    """
    if complaint := unusable(path):
        raise ConfigError(f"{field}: {complaint}; give the folder of a downloaded model")
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise ConfigError(
            f"{field}: {path} {what}; give the folder of a downloaded model "
            "(huggingface-cli download MODEL --local-dir FOLDER)"
        )
    if not (path / "config.json").is_file():
        raise ConfigError(f"{field}: {path} has no config.json, so it is not a model folder")
    read_settings(path)
    if not weight_bytes(path) and not random_weights:
        raise ConfigError(
            f"{field}: {path} holds no weights; download them, or set load_format: dummy "
            "for random ones"
        )


def unusable(path: Path) -> str | None:
    """Why the system would not even look for ``path``; None if it would."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"{str(path)[:200]} cannot be used: {error.strerror}"
    except ValueError as error:
        return f"{str(path)[:200]!r} cannot be a path: {error}"
    return None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        ConfigError: it cannot be read, or holds no object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}; download it again") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: not a JSON object; download it again")
    return content


def read_settings(folder: Path) -> dict[str, Any]:
    """A model's ``config.json``, in which what is computed with here is what it should be.

    Raises:
        ConfigError: it cannot be read, or a value in it is of the wrong kind.
    """
    path = folder / "config.json"
    settings = read_json(path)
    text = settings.get("text_config", settings)
    scaling = text.get("rope_scaling") or {} if isinstance(text, dict) else None
    if not isinstance(scaling, dict):
        what = "text_config" if scaling is None else "rope_scaling"
        raise ConfigError(f"{path}: {what} is no JSON object; download it again")
    values = [(name, text.get(name)) for name in (*CONTEXT_KEYS, *SIZES)]
    for name, value in [*values, ("factor", scaling.get("factor"))]:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 0 <= value < math.inf):
            raise ConfigError(f"{path}: {name} is {value!r}, and must be a number >= 0")
    return settings


def read_text(path: Path) -> str:
    """What is in a text file.

    Raises:
        ConfigError: it cannot be read, or holds no UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}; download it again") from error


def weight_bytes(folder: Path) -> int:
    """Size of the weight files: what members' needs are compared by."""
    return sum(file.stat().st_size for pattern in WEIGHTS for file in folder.glob(pattern))


def context_length(settings: dict[str, Any]) -> int:
    """The longest context of a model, from its ``config.json``, as SGLang computes it."""
    settings = settings.get("text_config", settings)
    scaling = settings.get("rope_scaling") or {}
    kind = scaling.get("rope_type")
    stated = "original_max_position_embeddings" in scaling or kind == "llama3"
    factor = 1 if stated else scaling.get("factor", 1)
    for key in CONTEXT_KEYS:
        if settings.get(key) is not None:
            return int(factor * settings[key])
    return 2048


def chat_template(folder: Path) -> str:
    """The template in a model folder; empty if it has none."""
    if (path := folder / "chat_template.jinja").is_file():
        return read_text(path)
    if (path := folder / "tokenizer_config.json").is_file():
        return str(read_json(path).get("chat_template") or "")
    return ""
