"""The supervisor: starts every process of a deployment, watches them, and ends them all.

It loads neither torch nor SGLang. The zygote it starts forks the children; they report
here (`ipc.supervision`) and get the roster once all are ready. From then on the keeper
restarts what dies or hangs (`processes.keeper`), until a signal asks to stop: then the front
end finishes what it has, and all are stopped together. None outlives the supervisor, however
it ends.
"""

from __future__ import annotations

import logging
import math
import signal
import time
from collections.abc import Callable

from tokenrouter.config import Config
from tokenrouter.configuration import shares
from tokenrouter.configuration.machine import this_machine
from tokenrouter.configuration.preflight import check_port, check_recording
from tokenrouter.errors import StartupError
from tokenrouter.ipc.ports import choose_ports
from tokenrouter.processes import roster
from tokenrouter.processes.directory import socket_directory
from tokenrouter.processes.family import Family
from tokenrouter.processes.keeper import Keeper
from tokenrouter.processes.logs import with_fields
from tokenrouter.processes.plan import Programs, plan, uses_gpu
from tokenrouter.processes.protocol import Launch
from tokenrouter.processes.signals import StopSignals
from tokenrouter.processes.startup import Startup
from tokenrouter.processes.summary import summary
from tokenrouter.processes.unit import group

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
    """Run the deployment until a signal ends it (0) or it cannot be kept whole (1).

    Args:
        announce: called with the server's URL once it answers.
        programs: what the children run.
        start_limit_s: seconds until it must answer.

    Raises:
        ConfigError: an address, or the folder for routing decisions, cannot be used.
        StartupError: a process could not start; the message says which and why.
    """
    config = config.model_copy(update={"port": check_port(config.host, config.port)})
    if config.record_decisions is not None:
        check_recording(config.record_decisions)
    if uses_gpu(config):
        config = shares.filled(config, this_machine)
    with socket_directory(config.socket_dir, config.names) as directory, StopSignals() as signals:
        ports = choose_ports(directory.path, config.names, config.ports, config.port)
        launch = plan(config, ports, programs or Programs())
        family = Family(launch, directory, signals)
        try:
            keeper = _start(family, config, launch, announce, start_limit_s)
            status = 0 if keeper is None else _keep(keeper, family, config)
        finally:
            _stop(family)
            family.close()
    logger.info("stopped")
    return status


def _start(
    family: Family,
    config: Config,
    launch: Launch,
    announce: Callable[[str], None],
    start_limit_s: float,
) -> Keeper | None:
    """From the zygote's start to the first answer; None if a signal asked to stop first."""
    begin = time.monotonic()
    deadline = begin + start_limit_s
    startup = Startup(launch.children)
    if not _wait(family, startup, lambda: not startup.waiting, deadline):
        return None
    members = roster.build(config, startup.members, _pids(family, launch))
    family.tell(family.names, members)
    if not _wait(family, startup, lambda: startup.url is not None, deadline):
        return None
    url = str(startup.url)
    for line, fields in summary(config, members, launch, url, startup.phases, family.pids):
        logger.info("%s", line, extra=with_fields(fields))
    announce(url)
    return Keeper(config, launch, family, members, start_limit_s, startup.phases.loads)


def _pids(family: Family, launch: Launch) -> dict[int, tuple[int, ...]]:
    """Of the ranks of every process."""
    return {
        process: tuple(family.pids[spec.name] for spec in unit.specs)
        for process, unit in group(launch.children).items()
    }


def _wait(family: Family, startup: Startup, reached: Callable[[], bool], deadline: float) -> bool:
    """Wait for a milestone; False if a signal asked to stop first.

    Raises:
        StartupError: something failed first, or the time is up.
    """
    while not reached():
        left = deadline - time.monotonic()
        if left <= 0:
            missing = ", ".join(sorted(startup.waiting)) or "the front end's first answer"
            raise StartupError(f"start-up takes too long; still waiting for {missing}")
        for event in family.poll(left):
            startup.take(event)
        if due := startup.due():
            family.start(due)
        if failure := startup.failure or family.failure:
            raise StartupError(failure)
        if family.stops:
            logger.info("asked to stop")
            return False
    return True


def _keep(keeper: Keeper, family: Family, config: Config) -> int:
    """Keep the deployment until it is asked to stop, or fails; its exit status."""
    while keeper.failure is None and not family.stops:
        keeper.turn(math.inf)
    if keeper.failure is None:
        _drain(keeper, family, config.drain_timeout_s)
    if keeper.failure is not None:
        logger.error("stopping: %s", keeper.failure)
        return 1
    return 0


def _drain(keeper: Keeper, family: Family, limit_s: float) -> None:
    """Let live requests finish, for ``limit_s`` seconds at most, or until asked again."""
    logger.info("asked to stop: finishing live requests, for %g s at most", limit_s)
    stops, deadline = family.stops, time.monotonic() + limit_s
    keeper.drain()
    while not keeper.drained and keeper.failure is None:
        left = deadline - time.monotonic()
        if family.stops > stops or left <= 0:
            why = "asked again" if left > 0 else "the time is up"
            logger.warning("%s: live requests end with an error", why)
            return
        keeper.turn(left)


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
