"""Settings as they are written: YAML, and paths relative to where they stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tokenrouter.configuration.model_folder import unusable
from tokenrouter.errors import ConfigError

DEMO_MODELS = Path(__file__).parent.parent / "demo" / "models"
DEMO_PREFIX = "demo:"
PATHS: Mapping[str, type[Path] | type[str]] = {"model_path": Path, "tokenizer_path": str}
"""Folders that a model entry names, and what each becomes: SGLang's own arguments stay text."""
TRAINED = {"router", "head"}
"""Arguments of algorithms that name files of trained networks."""


_NOT_YAML = (yaml.YAMLError, ValueError, LookupError, AttributeError)
"""What the loader raises; all but the first for scalars such as 2026-13-01 or ``!!int ''``."""


class _Loader(yaml.SafeLoader):
    """YAML in which a key given twice is an error, not a silent last one wins.

    So is half a character (a lone surrogate), which no file, process or client could be told.
    """

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """As the base class, after looking for what is no text."""
        value = super().construct_scalar(node)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise yaml.MarkedYAMLError(
                problem=f"{value!r} holds half a character", problem_mark=node.start_mark
            ) from None
        return value

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
    except RecursionError as error:
        raise ConfigError(f"{source}: not valid YAML: nested too deeply") from error
    except _NOT_YAML as error:
        raise ConfigError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from error


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings of a YAML file, and where each stands, as ``FILE:LINE`` by its dotted path.

    Raises:
        ConfigError: the file cannot be read, or is not a YAML mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}; give the path of a YAML file"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    content = parse_yaml(text, str(path))
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must hold a mapping such as 'models: [...]'")
    places = {where: f"{path}:{line}" for where, line in _lines(yaml.compose(text, _Loader))}
    return resolve(content, path.parent), places


def _lines(root: yaml.Node | None) -> Iterator[tuple[str, int]]:
    """The lines of top-level keys, of further algorithms, of models, and of their keys."""
    for key, value, line in _items(root):
        yield key, line
        if key == "algorithms":
            yield from ((f"{key}.{name}", line_of_name) for name, _, line_of_name in _items(value))
        if key != "models" or not isinstance(value, yaml.SequenceNode):
            continue
        for index, entry in enumerate(value.value):
            fields = list(_items(entry))
            names = [node.value for name, node, _ in fields if name == "name"]
            where = f"models.{names[0] if names else index}"
            yield where, entry.start_mark.line + 1
            for name, _, line_of_field in fields:
                yield f"{where}.{name}", line_of_field


def _items(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node, int]]:
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode):
            yield key.value, value, key.start_mark.line + 1


def resolve(settings: Mapping[Any, Any], base: Path) -> dict[str, Any]:
    """Settings with absolute paths; they were relative to ``base``."""
    resolved = dict(settings)
    for field in ("socket_dir", "record_decisions"):
        if isinstance(directory := resolved.get(field), str | Path):
            resolved[field] = _absolute(field, directory, base)
    if isinstance(arguments := resolved.get("algorithm_args"), Mapping):
        resolved["algorithm_args"] = resolve_trained(arguments, base)
    if isinstance(presets := resolved.get("algorithms"), Mapping):
        resolved["algorithms"] = {
            name: resolve(preset, base) if isinstance(preset, Mapping) else preset
            for name, preset in presets.items()
        }
    if isinstance(models := resolved.get("models"), list | tuple):
        resolved["models"] = [
            resolve_entry(entry, base) if isinstance(entry, dict) else entry for entry in models
        ]
    return resolved


def resolve_trained(arguments: Mapping[Any, Any], base: Path) -> dict[Any, Any]:
    """An algorithm's arguments, in which files of trained networks are absolute, if they exist.

    Also within: an algorithm may take another one, with arguments of its own. ``demo:FILE`` is
    one of the embedded pair's.
    """
    resolved = dict(arguments)
    for key, value in arguments.items():
        if isinstance(value, Mapping):
            resolved[key] = resolve_trained(value, base)
        elif key in TRAINED and isinstance(value, str):
            demo = value.startswith(DEMO_PREFIX)
            path = DEMO_MODELS / value.removeprefix(DEMO_PREFIX) if demo else base / value
            if not unusable(path) and path.exists():
                resolved[key] = str(path.absolute())
    return resolved


def resolve_entry(entry: Mapping[Any, Any], base: Path) -> dict[Any, Any]:
    """As `resolve`, of a model; ``demo:NAME`` is a model of the embedded pair."""
    resolved = dict(entry)
    for key, kind in PATHS.items():
        value = resolved.get(key)
        if isinstance(value, str) and value.startswith(DEMO_PREFIX):
            resolved[key] = kind(DEMO_MODELS / value.removeprefix(DEMO_PREFIX))
        elif isinstance(value, str | Path):
            resolved[key] = kind(_absolute(f"models.{entry.get('name')}.{key}", value, base))
    return resolved


def _absolute(field: str, path: str | Path, base: Path) -> Path:
    try:
        return base.absolute() / Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{field}: {path}: no such user's home; write the path out") from error
