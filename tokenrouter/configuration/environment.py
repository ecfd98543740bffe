"""Settings from environment variables: the layer between the file and the flags.

TOKENROUTER_<FIELD>                        a field of the deployment
TOKENROUTER_MODELS_<NAME>_<ARGUMENT>       an argument of one model
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tokenrouter.configuration.layers import Layer
from tokenrouter.configuration.model import argument_names, parse_argument
from tokenrouter.configuration.sglang_args import closest
from tokenrouter.configuration.sources import parse_yaml
from tokenrouter.errors import ConfigError

PREFIX = "TOKENROUTER_"
OF_A_MODEL = "TOKENROUTER_MODELS_"
STRUCTURED = frozenset({"algorithm_args", "algorithms", "models", "ports"})
"""Fields that are no scalars: their variables hold YAML (so JSON will do)."""

_SERVICE = re.compile(r"(.+_)?(SERVICE_(HOST|PORT(_.+)?)|PORT_\d+_(TCP|UDP|SCTP)(_.+)?)")
_ADDRESS = re.compile(r"(tcp|udp|sctp)://[^/]+:\d+")


def read(environment: Mapping[str, str], fields: Iterable[str]) -> Layer:
    """Values of the variables ``TOKENROUTER_<FIELD>``; those of a model: `read_models`.

    Raises:
        ConfigError: a variable is unknown, or holds no YAML where it must.
    """
    known = list(fields)
    values: dict[str, Any] = {}
    problems: list[str] = []
    for variable, text in _ours(environment):
        name = variable.removeprefix(PREFIX).lower()
        if name in STRUCTURED:
            values[name] = parse_yaml(text, variable)
        elif name in known:
            values[name] = text
        elif not variable.startswith(OF_A_MODEL):
            near = closest(name, known)
            hint = f"did you mean {PREFIX}{near.upper()}?" if near else "unset it"
            problems.append(f"{variable}: unknown environment variable; {hint}")
    if problems:
        raise ConfigError(*problems)
    return Layer(values, {name: PREFIX + name.upper() for name in values})


def read_models(environment: Mapping[str, str], names: Iterable[str]) -> Layer:
    """Values of the variables ``TOKENROUTER_MODELS_<NAME>_<ARGUMENT>`` for models ``names``.

    In ``NAME`` every character of a name that is neither letter nor digit is ``_``.

    Raises:
        ConfigError: a variable names no model, or two of them.
    """
    names = list(dict.fromkeys(names))
    arguments = frozenset(argument_names())
    models: dict[str, dict[str, Any]] = {}
    origins: dict[str, str] = {}
    problems: list[str] = []
    for variable, text in _ours(environment):
        if not variable.startswith(OF_A_MODEL):
            continue
        try:
            name, argument = _split(variable, names, arguments)
        except ConfigError as error:
            problems.extend(error.problems)
            continue
        models.setdefault(name, {})[argument] = parse_argument(argument, text, variable)
        origins[f"models.{name}.{argument}"] = variable
    if problems:
        raise ConfigError(*problems)
    return Layer({"models": models}, origins)


def in_capitals(name: str) -> str:
    """How variables spell the name of a model: ``qwen3-0.6b`` is ``QWEN3_0_6B``."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def _ours(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Our variables, without those that Kubernetes sets for services with our prefix."""
    for variable, text in environment.items():
        rest = variable.removeprefix(PREFIX)
        if rest != variable and not (_SERVICE.fullmatch(rest) or _ADDRESS.fullmatch(text)):
            yield variable, text


def _split(variable: str, names: list[str], arguments: frozenset[str]) -> tuple[str, str]:
    """The model and the argument of a variable: the longest name that leaves an argument."""
    rest = variable.removeprefix(OF_A_MODEL)
    found = {
        name: rest.removeprefix(f"{in_capitals(name)}_").lower()
        for name in names
        if rest.startswith(f"{in_capitals(name)}_")
    }
    if not found:
        known = ", ".join(f"{in_capitals(name)} ({name})" for name in names) or "none"
        raise ConfigError(f"{variable}: names no model; models are {known}")
    complete = {name: argument for name, argument in found.items() if argument in arguments}
    longest = max(map(len, complete or found))
    best = [name for name in complete or found if len(name) == longest]
    if len(best) > 1:
        raise ConfigError(f"{variable}: means {' or '.join(best)}; rename one of the two")
    return best[0], found[best[0]]
