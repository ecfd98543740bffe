"""From an algorithm's name to its class: built in, installed, or ``module:Class``.

Third parties publish an entry point in the group ``tokenrouter.algorithms``:

    [project.entry-points."tokenrouter.algorithms"]
    mine = "my_package.routing:Mine"
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

from tokenrouter.errors import ConfigError, Terminated, TokenRouterError
from tokenrouter.schedulers.base import RoutingScheduler
from tokenrouter.schedulers.hindsight import verified
from tokenrouter.schedulers.mistakes import told

GROUP = "tokenrouter.algorithms"
BUILT_IN = {
    "single": "tokenrouter.schedulers.single:Single",
    "random": "tokenrouter.schedulers.random:Random",
    "entropy": "tokenrouter.schedulers.entropy:EntropyRouting",
    "cascade": "tokenrouter.schedulers.cascade:Cascade",
    "immediate": "tokenrouter.schedulers.immediate:Immediate",
    "momentum": "tokenrouter.schedulers.momentum:MomentumRouting",
    "rolling": "tokenrouter.schedulers.rolling:RollingRouting",
    "duo_rolling": "tokenrouter.schedulers.duo_rolling:DuoRolling",
    "bild": "tokenrouter.schedulers.bild:BiLD",
    "r_stitch": "tokenrouter.schedulers.r_stitch:RStitch",
    "spec_reason": "tokenrouter.schedulers.spec_reason:SpecReason",
    "glimp_router": "tokenrouter.schedulers.glimp_router:GlimpRouter",
    "query": "tokenrouter.schedulers.query:Query",
    "r2r": "tokenrouter.schedulers.r2r:R2R",
    "neural_rolling": "tokenrouter.schedulers.neural_rolling:NeuralRolling",
    "citer": "tokenrouter.schedulers.citer:Citer",
    "co_llm": "tokenrouter.schedulers.co_llm:CoLLM",
    "speculative": "tokenrouter.schedulers.speculative:Speculative",
}


def names() -> list[str]:
    """Every algorithm that can be named, built in or installed."""
    return sorted({*BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))})


def find(name: str) -> type[RoutingScheduler]:
    """The class of algorithm ``name``.

    Raises:
        ConfigError: no such algorithm, or what was found is not a `RoutingScheduler`.
    """
    target = name if ":" in name else BUILT_IN.get(name) or _installed(name)
    if target is None:
        close = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ConfigError(
            f"algorithm: unknown algorithm {name!r}; {hint}"
            f"known: {', '.join(names())}, or give module:Class"
        )
    module_name, _, class_name = target.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except Terminated:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"algorithm: cannot load {target!r}: {told(error)}; give module:Class, importable from "
            "the current folder or installed"
        ) from error
    if not (inspect.isclass(found) and issubclass(found, RoutingScheduler)):
        raise ConfigError(f"algorithm: {target!r} is not a RoutingScheduler subclass")
    if found.route is RoutingScheduler.route:
        raise ConfigError(f"algorithm: {target!r} does not define route")
    return found


def create(
    name: str,
    members: Sequence[str],
    router_threshold: float | None = None,
    args: Mapping[str, Any] | None = None,
) -> RoutingScheduler:
    """An instance of algorithm ``name`` for these members; argument ``verify`` wraps any.

    Raises:
        ConfigError: unknown algorithm, or arguments it does not take.
    """
    arguments = dict(args or {})
    options = arguments.pop("verify", None)
    scheduler = _create(name, members, router_threshold, arguments)
    return scheduler if options is None else verified(scheduler, name, options)


def _create(
    name: str, members: Sequence[str], router_threshold: float | None, arguments: dict[str, Any]
) -> RoutingScheduler:
    scheduler = find(name)
    signature = inspect.signature(scheduler)
    try:
        signature.bind_partial(members, router_threshold)
    except TypeError as error:
        raise ConfigError(
            f"algorithm: {name} cannot be made: its __init__ must begin with (self, members, "
            f"router_threshold=None): {error}"
        ) from error
    try:
        signature.bind(members, router_threshold, **arguments)
    except TypeError as error:
        known = [*list(signature.parameters)[2:], *([] if scheduler.drafts else ["verify"])]
        hint = _meant(arguments, known)
        raise ConfigError(f"algorithm_args: {name} does not take them: {error}{hint}") from error
    scheduler.check_setting(name, members, router_threshold)
    try:
        return scheduler(members, router_threshold, **arguments)
    except (TokenRouterError, Terminated):
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"algorithm: {name} cannot be made: {told(error)}") from error


def _meant(given: Iterable[str], known: Sequence[str]) -> str:
    """Which argument a wrong one is probably meant to be."""
    for name in (name for name in given if name not in known):
        if close := difflib.get_close_matches(name, known, n=1):
            return f"; did you mean {close[0]!r}?"
    return f"; it takes {', '.join(known) or 'none'}"


def _installed(name: str) -> str | None:
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return entry.value
    return None
