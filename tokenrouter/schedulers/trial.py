"""What can be told of an algorithm before any request: whether its hooks can be called."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from tokenrouter.errors import ConfigError, Terminated
from tokenrouter.schedulers.base import RoutingScheduler
from tokenrouter.schedulers.mistakes import told
from tokenrouter.schedulers.signals import Declared
from tokenrouter.schedulers.wrapping import Wrapping

HOOKS = ("signals", "start", "receive", "route", "send", "check", "choose_members")


def check_hooks(scheduler: RoutingScheduler, name: str) -> None:
    """Make sure that the hooks of algorithm ``name`` take what they will be given.

    Raises:
        ConfigError: one takes something else, or is a coroutine.
    """
    if isinstance(scheduler, Wrapping):
        check_hooks(scheduler.inner, name)
    for hook in HOOKS:
        method = getattr(scheduler, hook)
        _self, *given = inspect.signature(getattr(RoutingScheduler, hook)).parameters
        try:
            inspect.signature(method).bind(*given)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"algorithm: {name}: {hook} must take ({', '.join(['self', *given])}): {error}"
            ) from error
        if inspect.iscoroutinefunction(method):
            raise ConfigError(f"algorithm: {name}: {hook} must not be async; nothing awaits it")


def declared(scheduler: RoutingScheduler, name: str, member: int) -> list[Declared]:
    """The signals that algorithm ``name`` asks of ``member``.

    Raises:
        ConfigError: its ``signals`` failed, or gave something else.
    """
    try:
        return known(scheduler.signals(member))
    except Terminated:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"algorithm: {name}: signals({member}) failed: {told(error)}; return a list of signals "
            "such as [Entropy()], or []"
        ) from error


def known(signals: Iterable[object]) -> list[Declared]:
    """Signals, checked: an engine computes no others.

    Raises:
        TypeError: something is no signal, or no key.
    """
    found: list[Declared] = []
    for signal in signals:
        if not isinstance(signal, Declared):
            raise TypeError(f"unknown signal {signal!r}")
        hash(signal)  # or raise: it will be a key
        found.append(signal)
    return found
