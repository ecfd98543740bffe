"""Where a configuration comes from: a YAML file, then the environment, then flags.

Later ones win. Paths are taken relative to where they were written: the file's folder, or
the working directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tokenrouter.configuration.sglang_args import nearest
from tokenrouter.errors import ConfigError

PREFIX = "TOKENROUTER_"
DEMO_MODELS = Path(__file__).parent.parent / "demo" / "models"
DEMO_PREFIX = "demo:"
PATHS = ("model_path", "tokenizer_path")


class _Loader(yaml.SafeLoader):
    """YAML in which a key given twice is an error, not a silent last one wins."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As the base class, after looking for a repeated key."""
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value!r} is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_file(path: Path) -> dict[str, Any]:
    """The settings of a YAML file.

    Raises:
        ConfigError: the file cannot be read, or is not a YAML mapping.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a safe loader
    except OSError as error:
        raise ConfigError(f"--config: cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must hold a mapping such as 'models: [...]'")
    return _resolved(content, path.parent)


def read_environment(environment: Mapping[str, str], scalars: Sequence[str]) -> dict[str, Any]:
    """Values of the variables ``TOKENROUTER_<SCALAR>``.

    Raises:
        ConfigError: a variable looks like a misspelt one.
    """
    found: dict[str, Any] = {}
    for variable, value in environment.items():
        name = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX):
            continue
        if name in scalars:
            found[name] = value
        elif hint := nearest(name, scalars):
            raise ConfigError(f"{variable}: unknown environment variable{hint} ({PREFIX}...)")
    return _resolved(found, Path.cwd())


def apply_flags(settings: dict[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` overridden by ``flags``.

    ``flags["models"]`` maps names to the fields to change: a known model is updated, and a
    new one added if its path or engine is given. ``flags["ports"]`` maps names to ports.

    Raises:
        ConfigError: a flag names a model that does not exist.
    """
    flags = dict(flags)
    models = {name: dict(fields) for name, fields in flags.pop("models", {}).items()}
    ports = flags.pop("ports", {})
    merged = {**settings, **_resolved(flags, Path.cwd())}
    if models:
        merged["models"] = _merge_models(settings.get("models") or [], models)
    if ports:
        known = _mapping("ports", settings.get("ports"))
        changed = {
            name: {**_mapping(f"ports.{name}", known.get(name)), **fixed}
            for name, fixed in ports.items()
        }
        merged["ports"] = {**known, **changed}
    return merged


def _merge_models(entries: Iterable[Any], changes: Mapping[str, dict[str, Any]]) -> list[Any]:
    merged = list(entries)
    index = {entry.get("name"): i for i, entry in enumerate(merged) if isinstance(entry, dict)}
    for name, given in changes.items():
        fields = _resolved_entry(given, Path.cwd())
        if name in index:
            merged[index[name]] = {**merged[index[name]], **fields}
        elif "model_path" in fields or "engine" in fields:
            merged.append({"name": name, **fields})
        else:
            known = ", ".join(
                str(each) for each in dict.fromkeys([*index, *changes]) if each != name
            )
            raise ConfigError(
                f"--{next(iter(fields))}: no model named {name!r}; models are {known or 'none'}"
            )
    return merged


def _mapping(field: str, value: Any) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise ConfigError(f"{field}: must be a mapping, got {value!r}")
    return value or {}


def _resolved(settings: Mapping[Any, Any], base: Path) -> dict[str, Any]:
    resolved = dict(settings)
    if isinstance(directory := resolved.get("socket_dir"), str | Path):
        resolved["socket_dir"] = base.absolute() / Path(directory).expanduser()
    if isinstance(models := resolved.get("models"), list):
        resolved["models"] = [
            _resolved_entry(entry, base) if isinstance(entry, dict) else entry for entry in models
        ]
    return resolved


def _resolved_entry(entry: Mapping[Any, Any], base: Path) -> dict[Any, Any]:
    """A model entry with absolute paths; ``demo:NAME`` is a model of the embedded pair."""
    resolved = dict(entry)
    for key in PATHS:
        value = resolved.get(key)
        if isinstance(value, str) and value.startswith(DEMO_PREFIX):
            resolved[key] = DEMO_MODELS / value.removeprefix(DEMO_PREFIX)
        elif isinstance(value, str | Path):
            resolved[key] = base.absolute() / Path(value).expanduser()
    return resolved
