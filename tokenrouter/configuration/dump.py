"""The configuration in force as YAML that can be read again, and where each value is from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tokenrouter.config import Config, Reading
from tokenrouter.configuration.model import ModelConfig
from tokenrouter.configuration.validation import origin_of


def dump(config: Config, reading: Reading) -> str:
    """YAML with a comment on each line; secrets are left out."""

    def origin(where: str, given: Mapping[str, Any]) -> str:
        if where.rpartition(".")[2] not in given:
            return "default"
        return origin_of(where, reading.origins) or "given"

    lines = [
        f"{name}: {_flow(value)}  # {origin(name, reading.given)}"
        for name, value in config.public().items()
        if name != "models"
    ]
    if config.api_key is not None:
        lines.append(f"# api_key: not shown  # {origin('api_key', reading.given)}")
    lines.append("models:")
    entries = reading.given["models"]
    for model, entry in zip(config.models, entries, strict=True):
        for index, (name, value) in enumerate(_fields(model)):
            where = origin(f"models.{model.name}.{name}", entry)
            lines.append(f"{'  ' if index else '- '}{name}: {_flow(value)}  # {where}")
    return "\n".join(lines) + "\n"


def _fields(model: ModelConfig) -> Iterator[tuple[str, Any]]:
    values = model.model_dump(exclude={"sglang"})
    yield from values.items()
    yield from model.sglang.items()


def _flow(value: Any) -> str:
    """A value on one line: JSON is YAML, except for infinity."""
    text = json.dumps(value, default=str)
    return text.replace("Infinity", ".inf") if isinstance(value, float) else text
