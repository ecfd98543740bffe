"""Algorithms that requests may name: the deployment's own and further ones, and built-in ones.

No request gives a path, a module or an argument: what an algorithm reads or runs is the
deployment's affair. So `registry.BUILT_IN` ones come with their defaults, and others only if they
are configured.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenrouter.config import Config
from tokenrouter.configuration.presets import Preset
from tokenrouter.configuration.sglang_args import nearest
from tokenrouter.errors import UnknownModelError
from tokenrouter.frontend.quoting import quoted
from tokenrouter.schedulers import registry


def names(config: Config) -> list[str]:
    """Every name, further ones first, in the order of the configuration."""
    own = [] if ":" in config.algorithm else [config.algorithm]
    return list(dict.fromkeys([*config.algorithms, *own, *registry.BUILT_IN]))


def find(name: str, field: str, config: Config) -> Preset:
    """The algorithm that a request's ``field`` calls ``name``.

    Raises:
        UnknownModelError: none is called so.
    """
    if name in config.algorithms:
        return config.algorithms[name]
    known = names(config)
    if name not in known:
        meant = _meant(name, known, config)
        raise UnknownModelError(
            f"{field}: no algorithm {quoted(name)} is served{meant} Known are "
            f"{', '.join(known)}; whoever runs the server can add others (key algorithms)",
            field,
        )
    return config.own if name == config.algorithm else Preset(algorithm=name)


def _meant(name: str, known: Sequence[str], config: Config) -> str:
    """What a wrong ``name`` is probably meant to be."""
    if name in (config.algorithm, config.algorithm.rpartition(":")[2]):
        return f" by name: it is what {config.served_name!r} alone asks for."
    return nearest(name, known) or "."
