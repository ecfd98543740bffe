"""The configuration in force as YAML that can be read again, and where each value is from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenrouter.config import Config, Reading
from tokenrouter.configuration.model import ModelConfig


def dump(config: Config, reading: Reading, path: Path | None) -> str:
    """YAML with a comment on each line; secrets are left out."""
    file = "file" if path is None else str(path)

    def origin(where: str, given: Mapping[str, Any]) -> str:
        # What set the whole list or mapping set what is in it.
        parts = where.split(".")
        paths = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
        set_by = next((reading.origins[each] for each in paths if each in reading.origins), file)
        return set_by if parts[-1] in given else "default"

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
