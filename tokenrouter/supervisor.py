"""The supervisor: starts every process of a deployment, watches them, and ends them all.

It loads neither torch nor SGLang. The zygote it starts forks the children; they report
here (`ipc.supervision`), get the roster once all are ready, and are stopped together when
a signal asks for it or one of them dies. None outlives the supervisor, however it ends:
each has asked the kernel to die with its parent.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable

from tokenrouter.config import Config
from tokenrouter.configuration.preflight import check_port
from tokenrouter.errors import StartupError
from tokenrouter.ipc.ports import choose_ports
from tokenrouter.processes import roster
from tokenrouter.processes.directory import socket_directory
from tokenrouter.processes.family import Family
from tokenrouter.processes.plan import Programs, plan
from tokenrouter.processes.protocol import Launch
from tokenrouter.processes.signals import StopSignals

START_LIMIT_S = 1800.0
"""A large model on a slow disk takes long to load; nothing sane takes longer."""
STOP_LIMIT_S = 5.0
"""From SIGTERM to SIGKILL."""
KILL_LIMIT_S = 1.0
"""From SIGKILL to giving up on the zygote's report of it."""

logger = logging.getLogger(__name__)


def serve(
    config: Config,
    announce: Callable[[str], None],
    programs: Programs | None = None,
    start_limit_s: float = START_LIMIT_S,
) -> int:
    """Run the deployment until a signal ends it (0) or one of its processes dies (1).

    Args:
        announce: called with the server's URL once it answers.
        programs: what the children run.
        start_limit_s: seconds until it must answer.

    Raises:
        ConfigError: an address cannot be used.
        StartupError: a process could not start; the message says which and why.
    """
    config = config.model_copy(update={"port": check_port(config.host, config.port)})
    with socket_directory(config.socket_dir, config.names) as directory, StopSignals() as signals:
        launch = plan(
            config, choose_ports(directory, config.names, config.ports), programs or Programs()
        )
        family = Family(launch, signals)
        try:
            return _live(family, config, launch, announce, start_limit_s)
        finally:
            _stop(family)
            family.close()


def _live(
    family: Family,
    config: Config,
    launch: Launch,
    announce: Callable[[str], None],
    start_limit_s: float,
) -> int:
    """From the zygote's start to the reason to stop."""
    begin = time.monotonic()
    deadline = begin + start_limit_s
    if not _wait(family, lambda: not family.waiting, deadline):
        return 0
    members = roster.build(config, family.members)
    family.broadcast(members)
    if not _wait(family, lambda: family.url is not None, deadline):
        return 0
    for line in roster.summary(config, members, launch):
        logger.info(line)
    logger.info("ready in %.1f s at %s", time.monotonic() - begin, family.url)
    announce(str(family.url))
    try:
        _wait(family, lambda: False, None)
    except StartupError as error:
        logger.error("stopping: %s", error)
        return 1
    return 0


def _wait(family: Family, reached: Callable[[], bool], deadline: float | None) -> bool:
    """Wait for a milestone; False if a signal asked to stop first.

    Raises:
        StartupError: something failed first, or the time is up.
    """
    while not reached():
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            missing = ", ".join(sorted(family.waiting)) or "the front end's first answer"
            raise StartupError(f"start-up takes too long; still waiting for {missing}")
        family.poll(left)
        if family.failure is not None:
            raise StartupError(family.failure)
        if family.stops:
            logger.info("asked to stop")
            return False
    return True


def _stop(family: Family) -> None:
    """End every child: SIGTERM, then SIGKILL for those that take too long, or on a new signal."""
    stops = family.stops
    for number, limit_s in ((signal.SIGTERM, STOP_LIMIT_S), (signal.SIGKILL, KILL_LIMIT_S)):
        if not family.signal(number):
            return
        deadline = time.monotonic() + limit_s
        while family.alive and family.stops == stops and time.monotonic() < deadline:
            family.poll(deadline - time.monotonic())
        if not family.alive:
            return
        logger.warning("%s did not end on %s", ", ".join(sorted(family.alive)), number.name)
