"""What is started, dies and is started again as one: all ranks of a member, or one process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tokenrouter.config import DETOKENIZER_NAME, FRONT_END_NAME, PLANNER_NAME, Config
from tokenrouter.ipc.messages import DETOKENIZER, FRONT_END, PLANNER
from tokenrouter.ipc.supervision import MemberReady
from tokenrouter.processes.protocol import ChildSpec

OTHERS = {FRONT_END_NAME: FRONT_END, DETOKENIZER_NAME: DETOKENIZER, PLANNER_NAME: PLANNER}
"""How messages name the processes that are not members."""


@dataclass(slots=True, eq=False)
class Unit:
    """One of them. ``process`` is how messages name it.

    ``alive``: names of its processes that run, or are to be started; ``waiting``: those that
    have not reported. ``joined``: it knows the others and they know it. ``down_since``: when
    it died (seconds, monotonic), until it serves again; ``reason``: of what, in its own words
    or in ours. ``starts``: when it was started again; ``starting``: the last of these, until
    it serves.
    """

    process: int
    specs: tuple[ChildSpec, ...]
    alive: set[str] = field(init=False)
    waiting: set[str] = field(default_factory=set)
    ready: MemberReady | None = None
    joined: bool = True
    down_since: float | None = None
    reason: str = ""
    starts: list[float] = field(default_factory=list)
    starting: float | None = None

    def __post_init__(self) -> None:
        self.alive = self.names

    @property
    def name(self) -> str:
        """What it is called in logs."""
        return self.specs[0].name

    @property
    def names(self) -> set[str]:
        """Of all its processes."""
        return {spec.name for spec in self.specs}

    def lost(self, now: float, reason: str) -> bool:
        """It died; whether it was there until now. The first reason is the one that counts."""
        self.reason = self.reason or reason
        self.starting = None
        joined, self.joined = self.joined, False
        if self.down_since is None:
            self.down_since = now
        return joined

    def started(self, now: float) -> None:
        """It was started again."""
        self.starts.append(now)
        self.starting = now
        self.reason = ""
        self.alive, self.waiting = self.names, self.names

    def returned(self, now: float) -> float | None:
        """It serves; how many seconds it was away, if it was."""
        since, self.down_since, self.starting = self.down_since, None, None
        return None if since is None else now - since

    def starting_since(self, now: float) -> float:
        """For how many seconds it has been on its way back; 0 if it is not."""
        return 0.0 if self.starting is None else now - self.starting

    def refusal(self, config: Config, now: float) -> str | None:
        """Why it must not be started again, if so."""
        if config.on_failure == "stop":
            return self.reason
        recent = sum(now - start < config.restart_window_s for start in self.starts)
        if recent >= config.max_restarts:
            return (
                f"{self.reason}; {self.name} was restarted {recent} times within "
                f"{config.restart_window_s:g} s, and is not again (max_restarts)"
            )
        return None


def group(children: Iterable[ChildSpec]) -> dict[int, Unit]:
    """The units of a deployment, by process."""
    specs: dict[int, list[ChildSpec]] = {}
    for child in children:
        process = OTHERS[child.name] if child.member is None else child.member
        specs.setdefault(process, []).append(child)
    return {process: Unit(process, tuple(each)) for process, each in specs.items()}
