"""Model names: which route a request asks for.

NAME                    routed by the deployment's algorithm
NAME@ROUTER_THRESHOLD   routed, with a threshold of its own
NAME/MEMBER             that member alone
"""

from __future__ import annotations

from functools import lru_cache

import orjson
from pydantic import ConfigDict, Field

from tokenrouter.config import Config
from tokenrouter.errors import ConfigError, RequestError, UnknownModelError
from tokenrouter.frontend.bodies import Body
from tokenrouter.ipc.messages import Route
from tokenrouter.schedulers import registry

DEFAULT = "default"
"""Stands for the routed name, and so does no name at all."""
THRESHOLD_FIELD = "routing.router_threshold"


class RoutingOptions(Body):
    """The request extension ``routing``."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    router_threshold: float | None = Field(default=None, allow_inf_nan=False)
    """Instead of the deployment's."""
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    """Of the algorithm's random draws, instead of the deployment's."""
    token_models: bool = False
    """Report the member that wrote each token."""


def ids(config: Config) -> list[str]:
    """The names that can be listed: the routed one, then each member alone."""
    return [config.served_name, *(f"{config.served_name}/{name}" for name in config.names)]


def seeded(options: RoutingOptions | None, seed: int | None) -> RoutingOptions:
    """``options`` with a request's ``seed``, unless they have one of their own."""
    options = options or RoutingOptions()
    return options.model_copy(update={"seed": seed}) if options.seed is None else options


def resolve(model: str | None, options: RoutingOptions | None, config: Config) -> Route:
    """The route of a request for ``model``.

    Raises:
        UnknownModelError: no such name.
        RequestError: a threshold that the algorithm does not take.
    """
    options = options or RoutingOptions()
    routed = config.served_name
    if model is None or model in (DEFAULT, routed):
        return _routed(options, options.router_threshold, THRESHOLD_FIELD, config)
    if model.startswith(f"{routed}@"):
        threshold = _number(model.removeprefix(f"{routed}@"))
        if options.router_threshold not in (None, threshold):
            raise RequestError(
                f"{THRESHOLD_FIELD} ({options.router_threshold:g}) and model ({model!r}) disagree; "
                "give one of them",
                THRESHOLD_FIELD,
            )
        return _routed(options, threshold, "model", config)
    member = model.removeprefix(f"{routed}/")
    if member == model or member not in config.names:
        raise UnknownModelError(
            f"unknown model {model!r}; served are {', '.join(map(repr, ids(config)))} and "
            f"'{routed}@ROUTER_THRESHOLD'",
            "model",
        )
    if options.router_threshold is not None:
        raise RequestError(
            f"{model!r} is one model, which takes no router threshold; ask for {routed!r}",
            THRESHOLD_FIELD,
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


def _routed(options: RoutingOptions, threshold: float | None, field: str, config: Config) -> Route:
    if threshold is not None:
        arguments = orjson.dumps(dict(config.algorithm_args))
        complaint = _complaint(config.algorithm, config.names, threshold, arguments)
        if complaint is not None:
            raise RequestError(f"{field}: {complaint}", field)
    return Route(
        algorithm=config.algorithm,
        members=tuple(range(len(config.models))),
        home=0,
        router_threshold=config.router_threshold if threshold is None else threshold,
        args=dict(config.algorithm_args),
        seed=config.seed if options.seed is None else options.seed,
        token_models=options.token_models,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RequestError(
            f"model: the router threshold after '@' must be a number, got {text!r}", "model"
        ) from None


@lru_cache(maxsize=256)
def _complaint(
    algorithm: str, members: tuple[str, ...], threshold: float, arguments: bytes
) -> str | None:
    """What the algorithm has against a router threshold, if anything."""
    try:
        registry.create(algorithm, members, threshold, orjson.loads(arguments))
    except ConfigError as error:
        return str(error).removeprefix("router_threshold: ")
    return None
