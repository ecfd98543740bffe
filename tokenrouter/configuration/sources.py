"""Where a configuration comes from: a YAML file, then the environment, then flags.

Later ones win. Each is a `Layer`, so that a wrong value can be traced to where it was written.
Paths are taken relative to that: the file's folder, or the working directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tokenrouter.errors import ConfigError

DEMO_MODELS = Path(__file__).parent.parent / "demo" / "models"
DEMO_PREFIX = "demo:"
PATHS = ("model_path", "tokenizer_path")


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings from one source.

    In a layer that changes another one, ``values["models"]`` may map names to the fields to
    change, and ``values["ports"]`` names to ports. ``origins`` says what set a field, by its
    dotted path (``models.small.threshold``).
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def model_names(self) -> list[str]:
        """The models it names, as far as it is well-formed."""
        models = self.values.get("models")
        if isinstance(models, Mapping):
            return [str(name) for name in models]
        entries = models if isinstance(models, list | tuple) else ()
        names = (entry.get("name") for entry in entries if isinstance(entry, Mapping))
        return [name for name in names if isinstance(name, str)]


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


def parse_yaml(text: str, source: str) -> Any:
    """The value that YAML text stands for.

    Raises:
        ConfigError: it is not YAML; ``source`` says whose text it is.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from error


def read_file(path: Path) -> Layer:
    """The settings of a YAML file.

    Raises:
        ConfigError: the file cannot be read, or is not a YAML mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--config: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    content = parse_yaml(text, str(path))
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must hold a mapping such as 'models: [...]'")
    return Layer(_resolved(content, path.parent))


def split(changes: Layer) -> tuple[Layer, Layer]:
    """A whole list of models, if ``changes`` has one, and the other changes."""
    models = changes.values.get("models")
    if models is None or isinstance(models, Mapping):
        return Layer(), changes
    rest = {name: value for name, value in changes.values.items() if name != "models"}
    return Layer({"models": models}, changes.origins), Layer(rest, changes.origins)


def join(first: Layer, second: Layer) -> Layer:
    """Two layers of changes as one; the second wins."""
    models: dict[str, dict[str, Any]] = {}
    for layer in (first, second):
        for name, fields in layer.values.get("models", {}).items():
            models.setdefault(name, {}).update(fields)
    values = {**first.values, **second.values}
    if models:
        values["models"] = models
    return Layer(values, {**first.origins, **second.origins})


def apply(settings: Layer, changes: Layer) -> Layer:
    """``settings`` overridden by ``changes``.

    A known model is updated, and a new one added if its path or engine is given; ports are
    joined with those that are known.

    Raises:
        ConfigError: a change to a model that does not exist.
    """
    values = dict(changes.values)
    models, ports = values.pop("models", {}), values.pop("ports", {})
    merged = {**settings.values, **_resolved(values, Path.cwd())}
    if isinstance(models, Mapping):
        if models:
            entries = settings.values.get("models") or []
            merged["models"] = _merge_models(entries, models, changes.origins)
    else:
        merged |= _resolved({"models": models}, Path.cwd())
    if ports:
        known = _mapping("ports", settings.values.get("ports"))
        changed = {
            name: {**_mapping(f"ports.{name}", known.get(name)), **_mapping(f"ports.{name}", fixed)}
            for name, fixed in _mapping("ports", ports).items()
        }
        merged["ports"] = {**known, **changed}
    return Layer(merged, {**settings.origins, **changes.origins})


def _merge_models(
    entries: Any, changes: Mapping[str, Mapping[str, Any]], origins: Mapping[str, str]
) -> list[Any]:
    if not isinstance(entries, list | tuple):
        raise ConfigError(f"models: must be a list of entries, got {entries!r}")
    merged = list(entries)
    index = {entry.get("name"): i for i, entry in enumerate(merged) if isinstance(entry, dict)}
    problems = []
    for name, given in changes.items():
        fields = _resolved_entry(given, Path.cwd())
        if name in index:
            merged[index[name]] = {**merged[index[name]], **fields}
        elif "model_path" in fields or "engine" in fields:
            merged.append({"name": name, **fields})
        else:
            source = origins.get(f"models.{name}.{next(iter(fields))}", "models")
            known = _listed(each for each in dict.fromkeys([*index, *changes]) if each != name)
            problems.append(f"{source}: no model named {name!r}; models are {known}")
    if problems:
        raise ConfigError(*problems)
    return merged


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names)) or "none"


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{name}: must be a mapping, got {value!r}")
    return value or {}


def _resolved(settings: Mapping[Any, Any], base: Path) -> dict[str, Any]:
    resolved = dict(settings)
    if isinstance(directory := resolved.get("socket_dir"), str | Path):
        resolved["socket_dir"] = base.absolute() / Path(directory).expanduser()
    if isinstance(models := resolved.get("models"), list | tuple):
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
