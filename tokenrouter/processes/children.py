"""The life of a forked child, around the function that is its work."""

from __future__ import annotations

import faulthandler
import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from setproctitle import setproctitle

from tokenrouter.config import Config
from tokenrouter.errors import ConfigError, TokenRouterError
from tokenrouter.ipc.supervision import ChildLink, Roster, StartupFailed
from tokenrouter.processes import kernel, logs
from tokenrouter.processes.log_writer import unblocked_stderr
from tokenrouter.processes.protocol import ChildSpec, Launch

CLEAN_EXIT_S = 2
"""From SIGTERM to the kernel's ending a child that could not leave by itself."""

logger = logging.getLogger(__name__)


class _Link(ChildLink):
    """Until the roster is there, SIGTERM kills outright; then it raises ``SystemExit``.

    Before, there is nothing to close, and Python drops exceptions that a handler raises
    in the middle of some imports.
    """

    def roster(self) -> Roster:
        """As `ChildLink`."""
        roster = super().roster()
        signal.signal(signal.SIGTERM, _exit)
        return roster


def run(spec: ChildSpec, config: Config, launch: Launch, parent: int) -> int:
    """Be the child ``spec``, from right after the fork to its exit status.

    Whatever goes wrong is told to the supervisor and logged; nothing is raised.
    """
    logs.set_up(spec.name, config.log_level, config.log_format)
    link: ChildLink | None = None
    try:
        _become(spec.name, parent)
        link = _Link(launch.ports.supervisor, spec.name)
        if not launch.shared:
            load(launch.prepare)(config)
        entry = load(spec.entry)
        if spec.member is None:
            entry(config, launch.ports, link)
        elif spec.rank == 0:
            entry(config, launch.ports, spec.member, spec.cores, link)
        else:
            entry(config, launch.ports, spec.member, spec.rank, spec.cores, link)
    except SystemExit as request:
        return _status(request)
    except BaseException as error:  # noqa: BLE001 - the end of a process
        _report(error, link)
        return 1
    return 0


def load(target: str) -> Callable[..., Any]:
    """The function that ``module:function`` names.

    Raises:
        ConfigError: the module has no such function.
        ImportError: there is no such module, or it cannot be imported.
    """
    module_name, _, name = target.partition(":")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module_name), name)
    except AttributeError as error:
        raise ConfigError(f"{target}: {error}") from error
    return function


def _become(name: str, parent: int) -> None:
    """Leave the zygote's identity behind: its title and its signal handler."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kernel.die_with(parent)
    setproctitle(f"tokenrouter::{name}")
    faulthandler.enable(unblocked_stderr())


def _exit(number: int, frame: FrameType | None) -> None:
    signal.alarm(CLEAN_EXIT_S)
    raise SystemExit(0)


def _status(request: SystemExit) -> int:
    if request.code is None or isinstance(request.code, int):
        return request.code or 0
    logger.error("%s", request.code)
    return 1


def log_uncaught(error: BaseException) -> str:
    """Log an error that ends a process, and put it in one line for the supervisor."""
    if isinstance(error, TokenRouterError):
        logger.error("%s", error)
        return str(error)
    logger.error("uncaught error", exc_info=error)
    return f"{type(error).__name__}: {error}"


def _report(error: BaseException, link: ChildLink | None) -> None:
    reason = log_uncaught(error)
    if link is not None:
        try:
            link.send(StartupFailed(reason))
        except OSError:
            logger.warning("the supervisor is gone")


def leave(status: int) -> None:
    """End this process without running what the zygote had registered for its own exit."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
