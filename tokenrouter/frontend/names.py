"""Model names: which route a request asks for.

NAME                              routed by the deployment's algorithm
NAME@ROUTER_THRESHOLD             routed, with a threshold of its own
NAME:ALGORITHM[@ROUTER_THRESHOLD] routed by another algorithm, which the deployment offers
NAME/MEMBER                       that member alone
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import ConfigDict, Field

from tokenrouter.config import Config
from tokenrouter.configuration.sglang_args import nearest
from tokenrouter.errors import ConfigError, RequestError, UnknownModelError
from tokenrouter.frontend import presets
from tokenrouter.frontend.algorithms import scheduler_of
from tokenrouter.frontend.bodies import Body
from tokenrouter.frontend.quoting import quoted
from tokenrouter.ipc.messages import Route

DEFAULT = "default"
"""Stands for the routed name, and so does no name at all."""
THRESHOLD_FIELD = "routing.router_threshold"
ALGORITHM_FIELD = "routing.algorithm"
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
LONGEST_NUMBER = 64
"""Characters of a threshold in a name, which is echoed."""
Value = TypeVar("Value", str, float)


class RoutingOptions(Body):
    """The request extension ``routing``."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    algorithm: str | None = None
    """Instead of the deployment's: one that it offers by this name."""
    router_threshold: float | None = Field(default=None, allow_inf_nan=False)
    """Instead of the algorithm's."""
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    """Of the algorithm's random draws, instead of the deployment's."""
    token_models: bool = False
    """Report the member that wrote each token."""


def ids(config: Config) -> list[str]:
    """The names that can be listed: the routed ones, then each member alone."""
    name = config.served_name
    return [
        name,
        *(f"{name}:{algorithm}" for algorithm in config.algorithms),
        *(f"{name}/{member}" for member in config.names),
    ]


def seeded(options: RoutingOptions | None, seed: int | None) -> RoutingOptions:
    """``options`` with a request's ``seed``, unless they have one of their own."""
    options = options or RoutingOptions()
    return options.model_copy(update={"seed": seed}) if options.seed is None else options


def algorithm_field(options: RoutingOptions | None) -> str:
    """The field of a request that names its algorithm."""
    return ALGORITHM_FIELD if options is not None and options.algorithm is not None else "model"


def resolve(model: str | None, options: RoutingOptions | None, config: Config) -> Route:
    """The route of a request for ``model``.

    Raises:
        UnknownModelError: no such name.
        RequestError: a threshold that the algorithm does not take, or two answers to a question.
    """
    options = options or RoutingOptions()
    routed = config.served_name
    if model is None or model == DEFAULT:
        model = routed
    named, at, number = model.partition("@")
    name, colon, algorithm = named.partition(":")
    if name == routed:
        return _routed(
            _agreed(model, algorithm if colon else None, options.algorithm, ALGORITHM_FIELD),
            _agreed(
                model, _number(number) if at else None, options.router_threshold, THRESHOLD_FIELD
            ),
            options,
            config,
        )
    member = model.removeprefix(f"{routed}/")
    if member == model or member not in config.names:
        raise UnknownModelError(
            f"unknown model {quoted(model)}; served are {', '.join(map(repr, ids(config)))}, "
            f"'{routed}@ROUTER_THRESHOLD' and '{routed}:ALGORITHM'{nearest(model, ids(config))}",
            "model",
        )
    for value, field, what in (
        (options.router_threshold, THRESHOLD_FIELD, "router threshold"),
        (options.algorithm, ALGORITHM_FIELD, "algorithm"),
    ):
        if value is not None:
            raise RequestError(
                f"{quoted(model)} is one model, which takes no {what}; ask for {routed!r}", field
            )
    return single(config.names.index(member), options, config)


def single(member: int, options: RoutingOptions, config: Config) -> Route:
    """A route that never leaves ``member``."""
    return Route(
        algorithm="single",
        members=(member,),
        home=member,
        seed=config.seed if options.seed is None else options.seed,
        token_models=options.token_models,
    )


@dataclass(frozen=True, slots=True)
class _Given(Generic[Value]):
    """What a request says, if anything, and the field that says it."""

    value: Value | None
    field: str


def _agreed(
    model: str, named: Value | None, option: Value | None, option_field: str
) -> _Given[Value]:
    """What a model name and an option say together."""
    if named is None:
        return _Given(option, option_field)
    if option not in (None, named):
        raise RequestError(
            f"{option_field} ({quoted(option)}) and model ({quoted(model)}) disagree; give one of "
            "them",
            option_field,
        )
    return _Given(named, "model")


def _routed(
    algorithm: _Given[str], threshold: _Given[float], options: RoutingOptions, config: Config
) -> Route:
    name, preset = algorithm.value, config.own
    if name is not None:
        preset = presets.find(name, algorithm.field, config)
        if name == config.algorithm and name not in config.algorithms:
            name = None
    if threshold.value is not None:
        preset = preset.model_copy(update={"router_threshold": threshold.value})
    route = Route(
        algorithm=preset.algorithm,
        members=tuple(range(len(config.models))),
        home=0,
        router_threshold=preset.router_threshold,
        args=dict(preset.algorithm_args),
        seed=config.seed if options.seed is None else options.seed,
        token_models=options.token_models,
        preset=name,
    )
    try:
        scheduler_of(route, config.names)
    except ConfigError as error:
        field = algorithm.field if threshold.value is None else threshold.field
        complaint = str(error).removeprefix("router_threshold: ")
        if complaint.startswith("algorithm_args"):
            complaint = (
                f"{preset.algorithm} needs settings from whoever runs the server (key "
                f"algorithms): {complaint}"
            )
        raise RequestError(f"{field}: {complaint}", field) from error
    return route


def _number(text: str) -> float:
    legal = len(text) <= LONGEST_NUMBER and NUMBER.fullmatch(text)
    if not legal or not math.isfinite(value := float(text)):
        raise RequestError(
            "model: the router threshold after '@' must be a number (finite, in at most "
            f"{LONGEST_NUMBER} characters), got {quoted(text)}",
            "model",
        )
    return value
