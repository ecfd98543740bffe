"""What a configuration is put together from: a YAML file, then the environment, then flags.

Later ones win. Each is a `Layer`, so that a wrong value can be traced to where it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenrouter.configuration.sources import resolve, resolve_entry
from tokenrouter.errors import ConfigError

OF_ALGORITHM = frozenset({"router_threshold", "algorithm_args"})
"""Settings that mean something to one algorithm, and something else or nothing to another."""


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
        for name, fields in _mapping("models", layer.values.get("models")).items():
            models.setdefault(name, {}).update(_mapping(f"models.{name}", fields))
    values = {**first.values, **second.values}
    if models:
        values["models"] = models
    return Layer(values, {**first.origins, **second.origins})


def apply(settings: Layer, changes: Layer) -> Layer:
    """``settings`` overridden by ``changes``.

    A known model is updated, and a new one added if its path or engine is given; ports and
    further algorithms are joined with those that are known. Another algorithm comes without the
    settings of the one that it replaces.

    Raises:
        ConfigError: a change to a model that does not exist.
    """
    values = dict(changes.values)
    models, ports = values.pop("models", {}), values.pop("ports", {})
    merged = {**_kept(settings.values, values), **resolve(values, Path.cwd())}
    if isinstance(models, Mapping):
        if models:
            entries = settings.values.get("models") or []
            merged["models"] = _merge_models(entries, models, changes.origins)
    else:
        merged |= resolve({"models": models}, Path.cwd())
    if further := values.get("algorithms"):
        known = _mapping("algorithms", settings.values.get("algorithms"))
        merged["algorithms"] = {**known, **_mapping("algorithms", further)}
    if ports:
        known = _mapping("ports", settings.values.get("ports"))
        changed = {
            name: {**_mapping(f"ports.{name}", known.get(name)), **_mapping(f"ports.{name}", fixed)}
            for name, fixed in _mapping("ports", ports).items()
        }
        merged["ports"] = {**known, **changed}
    origins = {**_still_valid(settings.origins, models), **changes.origins}
    if further and (source := changes.origins.get("algorithms")):
        origins |= {f"algorithms.{name}": source for name in further}
        origins["algorithms"] = settings.origins.get("algorithms", source)
    return Layer(merged, origins)


def _still_valid(origins: Mapping[str, str], models: Any) -> dict[str, str]:
    """What set the fields that ``models`` leave alone."""
    if not isinstance(models, Mapping):
        return {path: origin for path, origin in origins.items() if not path.startswith("models")}
    changed = {
        f"models.{name}.{field}"
        for name, fields in models.items()
        if isinstance(fields, Mapping)
        for field in fields
    }
    return {path: origin for path, origin in origins.items() if path not in changed}


def _kept(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` without those of an algorithm that ``changes`` replace."""
    algorithm = settings.get("algorithm")
    if algorithm is None or changes.get("algorithm", algorithm) == algorithm:
        return dict(settings)
    return {name: value for name, value in settings.items() if name not in OF_ALGORITHM}


def _merge_models(
    entries: Any, changes: Mapping[str, Mapping[str, Any]], origins: Mapping[str, str]
) -> list[Any]:
    if not isinstance(entries, list | tuple):
        raise ConfigError(f"models: must be a list of entries, got {entries!r}")
    merged = list(entries)
    index = {entry.get("name"): i for i, entry in enumerate(merged) if isinstance(entry, dict)}
    problems = []
    for name, given in changes.items():
        fields = resolve_entry(_mapping(f"models.{name}", given), Path.cwd())
        if name in index:
            merged[index[name]] = {**merged[index[name]], **fields}
        elif "model_path" in fields or "engine" in fields:
            merged.append({"name": name, **fields})
        else:
            source = origins.get(f"models.{name}.{next(iter(fields), '')}", "models")
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
