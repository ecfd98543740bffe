"""Keeps a started deployment whole: notices deaths and hangs, restarts, tells the others.

Receives the events of the `Family`. A unit that dies is announced at once (`Down`), its other
ranks are killed, and when all are gone it is started again; when it is ready, everybody else
learns its new generation (`Up`) before it learns about them (`Roster`).
"""

from __future__ import annotations

import logging
import secrets
import signal
import time
from collections.abc import Callable, Mapping

from tokenrouter.config import Config
from tokenrouter.errors import StartupError
from tokenrouter.ipc.messages import FRONT_END, PLANNER
from tokenrouter.ipc.ports import renewed
from tokenrouter.ipc.supervision import (
    Busy,
    Down,
    Drain,
    Drained,
    MemberReady,
    Ping,
    Pong,
    Ready,
    Roster,
    Serving,
    StartupFailed,
    Stuck,
    SupervisorMessage,
    Up,
)
from tokenrouter.processes import roster as rosters
from tokenrouter.processes.family import Event, Family, Gone, HungUp, Said, ZygoteAlive
from tokenrouter.processes.heartbeat import Heartbeat
from tokenrouter.processes.protocol import Launch
from tokenrouter.processes.unit import Unit, group

ZYGOTE = "zygote"
RELOAD_FACTOR = 3.0
"""How much longer than at first a process may take to be ready again, as others compute then."""

logger = logging.getLogger(__name__)


class Keeper:
    """Of a deployment that serves.

    Args:
        start_limit_s: the longest that a process may take to come back.
        loads: seconds that each process took to its first readiness. One that takes
            `RELOAD_FACTOR` times as long, beyond ``hang_timeout_s``, hangs.

    Attributes:
        failure: why it must stop, in words, once it must.
        drained: no request is left, or there is nobody who could have one.
    """

    def __init__(
        self,
        config: Config,
        launch: Launch,
        family: Family,
        roster: Roster,
        start_limit_s: float,
        loads: Mapping[str, float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failure: str | None = None
        self.drained = False
        self._config, self._family, self._roster, self._clock = config, family, roster, clock
        self._ports = launch.ports
        self._units = group(launch.children)
        self._start_limits = {
            process: min(
                start_limit_s,
                config.hang_timeout_s + RELOAD_FACTOR * max(loads[name] for name in unit.names),
            )
            for process, unit in self._units.items()
        }
        self._unit_of = {name: unit for unit in self._units.values() for name in unit.names}
        self._heartbeat = Heartbeat(config.hang_timeout_s, clock())
        self._heartbeat.watch([*self._unit_of, ZYGOTE])
        self._draining = False
        self._pings = 0

    def turn(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for something to happen, and see to it."""
        left = self._heartbeat.left(self._clock())
        for event in self._family.poll(min(timeout, left)):
            self._take(event)
        if self._family.failure is not None:
            self._fail(self._family.failure)
        elif not self._heartbeat.left(self._clock()):
            self._beat()

    def drain(self) -> None:
        """Have the front end take no more requests; nothing is restarted from now on."""
        self._draining = True
        front_end = self._units[FRONT_END]
        if front_end.down_since is None:
            self._family.tell(front_end.names, Drain())
        else:
            self.drained = True

    def _take(self, event: Event) -> None:
        match event:
            case ZygoteAlive():
                self._heartbeat.answered(ZYGOTE)
            case HungUp(name, why):
                self._lost(self._unit_of[name], f"{name}: {why}" if why else "")
            case Gone(name, how):
                self._gone(self._unit_of[name], name, f"{name} died ({how})")
            case Said(name, message):
                self._heartbeat.answered(name)
                self._hear(self._unit_of[name], name, message)

    def _hear(self, unit: Unit, name: str, message: object) -> None:
        match message:
            case Pong():
                pass
            case MemberReady():
                unit.ready = message
                self._reported(unit, name)
            case Ready():
                self._reported(unit, name)
            case Serving():
                self._returned(unit)
            case Busy(seconds):  # with all its ranks
                self._heartbeat.excuse(unit.names, name, self._clock() + seconds)
            case Stuck(process, generation):
                self._stuck(process, generation, name)
            case StartupFailed(reason):
                unit.reason = unit.reason or f"{name}: {reason}"
            case Drained():
                self.drained = True

    def _stuck(self, process: int, generation: int, sender: str) -> None:
        """What was said of an earlier generation is settled already."""
        unit = self._units.get(process)
        if unit and unit.joined and generation == self._roster.generation(process):
            self._lost(unit, f"{unit.name} does not read what {sender} sends it")

    def _lost(self, unit: Unit, reason: str) -> None:
        """One of its processes is dead or as good as dead: so is the unit."""
        if unit.lost(self._clock(), reason):
            self._tell_others(unit, Down(unit.process))
        self._heartbeat.forget(unit.names)
        if unit.alive:
            self._family.signal(signal.SIGKILL, unit.alive)

    def _gone(self, unit: Unit, name: str, reason: str) -> None:
        unit.alive.discard(name)
        self._lost(unit, reason)
        if unit.alive:
            return
        if unit.process == FRONT_END:
            self.drained = True
        now = self._clock()
        refusal = unit.refusal(self._config, now)
        if self._draining:
            logger.error("%s", unit.reason)
        elif refusal and unit.process == PLANNER and self._config.on_failure == "restart":
            logger.error("%s: thresholds are again what the configuration says", refusal)
            self._tell_others(unit, Down(PLANNER, for_good=True))
        elif refusal:
            self._fail(refusal)
        else:
            loss = "thresholds stay as they are" if unit.process == PLANNER else "its requests fail"
            logger.error("%s; %s, and it is started again", unit.reason, loss)
            unit.started(now)
            self._start(unit)

    def _start(self, unit: Unit) -> None:
        if unit.process >= 0:
            fixed = self._config.ports.get(self._config.names[unit.process], {})
            self._ports = renewed(self._ports, unit.process, fixed, self._config.port)
        self._family.start(unit.specs, self._ports)

    def _reported(self, unit: Unit, name: str) -> None:
        unit.waiting.discard(name)
        if unit.waiting or unit.joined:
            return
        up = Up(
            unit.process,
            secrets.randbits(rosters.GENERATION_BITS),
            unit.ready,
            len(unit.starts),
            tuple(self._family.pids[spec.name] for spec in unit.specs),
        )
        try:
            self._roster = rosters.check(self._config, self._roster.after(up))
        except StartupError as error:
            self._fail(str(error))
            return
        self._tell_others(unit, up)
        unit.joined = True
        missing = [Down(each.process) for each in self._units.values() if not each.joined]
        self._family.tell(unit.names, self._roster, *missing)
        if unit.process != FRONT_END:  # which is not there before it listens
            self._returned(unit)

    def _returned(self, unit: Unit) -> None:
        away = unit.returned(self._clock())
        if away is not None:
            logger.warning("%s is back after %.1f s", unit.name, away)
        self._heartbeat.watch(unit.names)

    def _tell_others(self, unit: Unit, message: SupervisorMessage) -> None:
        """The front end last: what it sends in consequence finds the others informed."""
        for each in sorted(self._units.values(), key=lambda other: other.process == FRONT_END):
            if each is not unit and each.joined:
                self._family.tell(each.names, message)

    def _beat(self) -> None:
        due, overdue = self._heartbeat.beat(self._clock())
        for name in overdue:
            silence = f"no sign of life for {self._config.hang_timeout_s:g} s"
            if name == ZYGOTE:
                self._fail(f"the zygote hangs ({silence})")
                return
            self._lost(self._unit_of[name], f"{name} hangs ({silence})")
        for unit in self._units.values():
            limit = self._start_limits[unit.process]
            if unit.starting_since(self._clock()) > limit:
                self._lost(unit, f"{unit.name} hangs in its start (not ready within {limit:.1f} s)")
        self._pings += 1
        for name in due:
            if name == ZYGOTE:
                self._family.probe_zygote()
            else:
                self._family.tell([name], Ping(self._pings))

    def _fail(self, what: str) -> None:
        if self.failure is None:
            self.failure = what
