"""The life of a forked child, around the function that is its work."""

from __future__ import annotations

import faulthandler
import importlib
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

from tokenrouter.config import Config
from tokenrouter.errors import ConfigError, Terminated, TokenRouterError
from tokenrouter.ipc.supervision import ChildLink, Roster, StartupFailed
from tokenrouter.processes import kernel, logs, titles
from tokenrouter.processes.log_writer import unblocked_stderr
from tokenrouter.processes.protocol import ChildSpec, Launch

CLEAN_EXIT_S = 2
"""From SIGTERM, or an error, to the kernel's ending a child that could not leave by itself."""

MAX_REASON = 500
"""Characters of an error that another package raised."""

logger = logging.getLogger(__name__)


class _Link(ChildLink):
    """Until the roster is there, SIGTERM kills outright; then it raises `Terminated`.

    Before, there is nothing to close, and Python drops exceptions that a handler raises
    in the middle of some imports.
    """

    joined = False
    """Whether the roster is there: the process has loaded what it needs."""

    def roster(self) -> Roster:
        """As `ChildLink`."""
        roster = super().roster()
        self.joined = True
        signal.signal(signal.SIGTERM, _exit)
        return roster


def run(spec: ChildSpec, config: Config, launch: Launch, parent: int) -> int:
    """Be the child ``spec``, from right after the fork to its exit status.

    Whatever goes wrong is told to the supervisor and logged; nothing is raised.
    """
    logs.set_up(spec.name, config.log_level, config.log_format)
    link: _Link | None = None
    try:
        _become(spec.name, config, parent)
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


def _become(name: str, config: Config, parent: int) -> None:
    """Leave the zygote's identity behind: its title and its signal handler."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kernel.die_with(parent)
    titles.entitle(config, name)
    faulthandler.enable(unblocked_stderr())


def _exit(number: int, frame: FrameType | None) -> None:
    signal.alarm(CLEAN_EXIT_S)
    raise Terminated(0)


def _status(request: SystemExit) -> int:
    if request.code is None or isinstance(request.code, int):
        return request.code or 0
    logger.error("%s", request.code)
    return 1


def log_failed_start(error: BaseException) -> str:
    """Log an error that keeps a process from starting, and put it in one line.

    Nearly always the configuration or the machine is to blame: where in the code it was
    noticed is for those who ask, at log level debug.
    """
    if isinstance(error, TokenRouterError):
        reason = str(error)
    else:
        what = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
        reason = (
            f"{what[:MAX_REASON]} (at {_place(error)}); look at what the configuration says of "
            "it, --log-level debug shows more"
        )
    logger.error("cannot start: %s", reason)
    logger.debug("cannot start", exc_info=error)
    return reason


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"


def _report(error: BaseException, link: _Link | None) -> None:
    # What is logged here must be written before the SIGTERM that answers `StartupFailed` ends this.
    signal.alarm(CLEAN_EXIT_S)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if link is None or not link.joined:
        reason = log_failed_start(error)
    elif isinstance(error, TokenRouterError):
        logger.error("%s", reason := str(error))
    else:
        logger.error("uncaught error", exc_info=error)
        reason = f"{type(error).__name__}: {error}"
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
