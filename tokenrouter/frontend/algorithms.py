"""Algorithms as the front end knows them: what they refuse, and what they need room for.

They route on members only (`subserver.routing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from tokenrouter.errors import ConfigError
from tokenrouter.ipc.messages import Route
from tokenrouter.schedulers import registry
from tokenrouter.schedulers.base import RoutingScheduler

KEPT = 256
"""Distinct (algorithm, threshold, arguments) kept ready; others are made again."""


def scheduler_of(route: Route, names: Sequence[str]) -> RoutingScheduler:
    """The algorithm of a route between members ``names``, shared by all requests like it.

    Raises:
        ConfigError: it does not take these settings.
    """
    made = _made(
        tuple(names), msgspec.msgpack.encode((route.algorithm, route.router_threshold, route.args))
    )
    if isinstance(made, tuple):
        raise ConfigError(*made)
    return made


@lru_cache(KEPT)
def _made(names: tuple[str, ...], key: bytes) -> RoutingScheduler | tuple[str, ...]:
    """A scheduler, or why there is none."""
    algorithm, threshold, args = msgspec.msgpack.decode(key)
    try:
        return registry.create(algorithm, names, threshold, args)
    except ConfigError as error:
        return error.problems
