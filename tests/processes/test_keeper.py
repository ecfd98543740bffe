"""What follows from deaths, hangs and returns, without any process."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.processes.fakes import ready
from tokenrouter.config import Config
from tokenrouter.ipc import ports
from tokenrouter.ipc.messages import DETOKENIZER, FRONT_END, PLANNER
from tokenrouter.ipc.ports import Ports, choose_ports
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
from tokenrouter.processes.family import Event, Gone, HungUp, Said, ZygoteAlive
from tokenrouter.processes.keeper import Keeper
from tokenrouter.processes.protocol import ChildSpec, Launch

pytestmark = pytest.mark.timeout(10)

NAMES = ("small", "large", "large#1", "front-end", "detokenizer", "planner")
ROSTER = Roster((ready(0), ready(1)), (10, 11), {FRONT_END: 12, DETOKENIZER: 13, PLANNER: 14})
LOADS = {**dict.fromkeys(NAMES, 2.0), "small": 1.0, "large": 4.0, "large#1": 5.0}
"""Seconds of their first starts."""
KILLED = "killed by SIGKILL"


class Family:
    """Writes down what it is told, and plays the events it is given."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self.events: list[Event] = []
        self.told: list[tuple[str, SupervisorMessage]] = []
        self.killed: list[str] = []
        self.started: list[str] = []
        self.pids = {name: 100 + index for index, name in enumerate(NAMES)}
        self.probes = 0

    def poll(self, timeout: float | None) -> list[Event]:
        events, self.events = self.events, []
        return events

    def tell(self, names: Iterable[str], *messages: SupervisorMessage) -> None:
        self.told += [(name, message) for name in names for message in messages]

    def start(self, specs: Sequence[ChildSpec], ports: Ports) -> None:
        self.started += [spec.name for spec in specs]
        self.pids |= {spec.name: self.pids[spec.name] + 1000 for spec in specs}
        self.ports = ports

    def signal(self, number: int, names: Iterable[str]) -> bool:
        assert number == signal.SIGKILL
        self.killed += sorted(names)
        return True

    def probe_zygote(self) -> None:
        self.probes += 1


class World:
    """A keeper of six processes, one member having two ranks; time is a number."""

    def __init__(self, **settings: Any) -> None:
        models = [{"name": name, "engine": "timed", "step_ms": 1} for name in ("small", "large")]
        self.config = Config.model_validate({"models": models, **settings})
        children = (
            ChildSpec("small", "m", 0),
            ChildSpec("large", "m", 1),
            ChildSpec("large#1", "m", 1, rank=1),
            ChildSpec("front-end", "f"),
            ChildSpec("detokenizer", "d"),
            ChildSpec("planner", "p"),
        )
        ports = choose_ports(Path("/x"), self.config.names, self.config.ports)
        launch = Launch("", ports, children, "", True)
        self.now = 100.0
        self.family = Family()
        family: Any = self.family
        self.keeper = Keeper(self.config, launch, family, ROSTER, 50.0, LOADS, lambda: self.now)

    def happen(self, *events: Event) -> None:
        self.family.events += events
        self.keeper.turn(0.0)

    def pass_time(self, seconds: float, alive: Sequence[str] = (), step: float = 0.5) -> None:
        """In steps; those who are alive answer."""
        end = self.now + seconds
        while self.now < end:
            self.now += step
            self.happen(ZygoteAlive(), *(Said(name, Pong(0)) for name in alive))

    def heard(self, name: str) -> list[SupervisorMessage]:
        """What a process was told since the last question, pings aside."""
        mine = [m for n, m in self.family.told if n == name and not isinstance(m, Ping)]
        self.family.told = [(n, m) for n, m in self.family.told if n != name]
        return mine

    def die(self, *names: str) -> None:
        self.happen(*(event for n in names for event in (HungUp(n, ""), Gone(n, KILLED))))

    def come_back(self, member: int = 1) -> None:
        self.happen(Said("large", ready(member)), Said("large#1", Ready()))


def test_ranks_that_return_do_not_get_the_port_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(port=12345)
    monkeypatch.setattr(ports, "free_ports", lambda count, besides: [20_000 + (12345 in besides)])
    world.die("small")
    assert world.family.ports.members[0].nccl == 20_001


def test_ranks_die_and_return_together() -> None:
    world = World()
    world.happen(HungUp("large#1", ""))
    assert world.family.killed == ["large", "large#1"]
    for name in ("small", "front-end", "detokenizer", "planner"):
        assert world.heard(name) == [Down(1)], "at once, whoever still has to die"
    world.happen(Gone("large#1", KILLED))
    assert world.family.started == []
    world.happen(HungUp("large", ""), Gone("large", KILLED))
    assert world.family.started == ["large", "large#1"]
    assert [world.heard(name) for name in NAMES] == [[]] * 6, "it is announced once"
    world.happen(Said("large#1", Ready()))
    assert world.heard("small") == []
    world.happen(Said("large", ready(1)))
    (up,) = world.heard("small")
    assert isinstance(up, Up)
    assert (up.process, up.ready, up.restarts) == (1, ready(1), 1)
    assert up.pids == (1101, 1102)
    assert up.generation != 11
    for name in ("front-end", "detokenizer", "planner"):
        assert world.heard(name) == [up]
    for name in ("large", "large#1"):
        assert world.heard(name) == [ROSTER.after(up)]


def test_the_news_are_out_before_the_newcomer_knows_anybody() -> None:
    """It must not be able to speak to someone who does not know it yet."""
    world = World()
    world.die("large", "large#1")
    world.family.told.clear()
    world.come_back()
    order = [name for name, _ in world.family.told]
    assert order[:3] == ["small", "detokenizer", "planner"]
    assert order[3] == "front-end"
    assert set(order[4:]) == {"large", "large#1"}


def test_who_is_down_is_told_nothing_and_catches_up() -> None:
    world = World()
    world.die("small")
    world.die("large", "large#1")
    assert world.heard("small") == []
    assert world.heard("large") == [Down(0)]
    assert world.heard("front-end") == [Down(0), Down(1)]
    world.happen(Said("small", ready(0)))
    roster, down = world.heard("small")
    assert isinstance(roster, Roster)
    assert down == Down(1)
    world.come_back()
    (up,) = world.heard("small")
    assert isinstance(up, Up)
    assert len(world.heard("large")) == 1, "nobody is missing any more"


def test_a_front_end_is_there_once_it_serves(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.die("front-end")
    world.now += 2.5
    world.happen(Said("front-end", Ready()))
    (up,) = [each for each in world.heard("small") if isinstance(each, Up)]
    assert up.process == FRONT_END
    (roster,) = world.heard("front-end")
    assert isinstance(roster, Roster)
    assert roster.generation(FRONT_END) == up.generation
    assert "is back" not in caplog.text
    world.happen(Said("front-end", Serving("http://x")))
    assert "front-end is back after 2.5 s" in caplog.text


def test_the_first_reason_is_the_one_that_is_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.happen(Said("large", StartupFailed("frames 3..4 were lost")), HungUp("large", ""))
    world.die("large", "large#1")
    assert "large: frames 3..4 were lost; its requests fail" in caplog.text
    assert KILLED not in caplog.text


def test_restarts_are_limited_within_the_window() -> None:
    world = World(max_restarts=2, restart_window_s=100)
    for _ in range(3):
        world.die("small")
        world.happen(Said("small", ready(0)))
        world.now += 60
    world.now -= 60
    assert world.keeper.failure is None, "the first is forgotten when the third comes"
    world.die("detokenizer")
    assert world.keeper.failure is None, "each process has its own"
    world.die("small")
    assert world.keeper.failure == (
        "small died (killed by SIGKILL); small was restarted 2 times within 100 s, and is not "
        "again (max_restarts)"
    )


def test_a_planner_that_keeps_dying_is_given_up_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(max_restarts=1)
    world.die("planner")
    assert "planner died (killed by SIGKILL); thresholds stay as they are, and it is" in caplog.text
    world.happen(Said("planner", Ready()))
    world.die("planner")
    assert world.keeper.failure is None
    assert world.family.started == ["planner"]
    assert "was restarted 1 times" in caplog.text
    for name in ("small", "large", "front-end"):
        assert world.heard(name)[-2:] == [Down(PLANNER), Down(PLANNER, for_good=True)]
    world.die("detokenizer")
    world.happen(Said("detokenizer", Ready()))
    assert world.heard("detokenizer")[-1] == Down(PLANNER), "the others go on without it"
    world = World(on_failure="stop")
    world.die("planner")
    assert world.keeper.failure == "planner died (killed by SIGKILL)"


def test_a_newcomer_that_does_not_fit_ends_everything() -> None:
    world = World()
    world.die("small")
    world.happen(Said("small", ready(0, vocabulary="another")))
    assert world.keeper.failure is not None
    assert "small and large loaded different vocabularies" in world.keeper.failure


def test_a_start_that_never_ends_is_ended() -> None:
    world = World()
    world.die("large", "large#1")
    world.happen(Said("large", ready(1)))
    world.family.killed.clear()
    alive = ("small", "front-end", "detokenizer", "planner")
    world.pass_time(49, alive)
    assert world.family.killed == []
    world.pass_time(2, alive)
    assert world.family.killed == ["large", "large#1"]
    world.die("large", "large#1")
    assert world.family.started == ["large", "large#1"] * 2


def test_one_that_hangs_while_it_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    """A member that was ready in 5 s at first does not get half an hour to come back."""
    world = World(hang_timeout_s=10)
    world.die("large", "large#1")
    world.family.killed.clear()
    alive = ("small", "front-end", "detokenizer", "planner")
    world.pass_time(24, alive)
    assert world.family.killed == []
    world.pass_time(2, alive)
    assert world.family.killed == ["large", "large#1"]
    world.die("large", "large#1")
    assert "large hangs in its start (not ready within 25.0 s)" in caplog.text
    assert world.family.started == ["large", "large#1"] * 2
    world.family.killed.clear()
    world.come_back()
    world.pass_time(60, NAMES)
    assert world.family.killed == []


def test_one_that_hangs_is_killed_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(hang_timeout_s=10)
    alive = tuple(name for name in NAMES if name != "large")
    world.pass_time(10, alive)
    assert world.family.killed == []
    world.pass_time(2, alive)
    assert world.family.killed == ["large", "large#1"]
    assert world.heard("small") == [Down(1)]
    world.pass_time(20, ("small", "front-end", "detokenizer", "planner"))
    assert world.family.killed == ["large", "large#1"]
    world.die("large", "large#1")
    assert "large hangs (no sign of life for 10 s); its requests fail" in caplog.text
    assert world.keeper.failure is None


def test_one_that_is_busy_may_be_silent_for_so_long() -> None:
    world = World(hang_timeout_s=10)
    world.happen(Said("large", Busy(100.0)))
    others = ("small", "front-end", "detokenizer", "planner")
    world.pass_time(1, [*others, "large#1"])  # which had not begun yet
    world.pass_time(104, others)
    assert world.family.killed == [], "its ranks are busy with it"
    world.pass_time(1, NAMES)
    world.pass_time(12, others)
    assert world.family.killed[:2] == ["large", "large#1"], "the excuse ended with the answer"
    world = World(hang_timeout_s=10)
    world.happen(Said("large", Busy(20.0)))
    world.pass_time(35, others)
    assert world.family.killed[:2] == ["large", "large#1"]


def test_a_zygote_that_hangs_ends_everything() -> None:
    world = World(hang_timeout_s=10)
    for _ in range(24):
        world.now += 0.5
        world.happen(*(Said(name, Pong(0)) for name in NAMES))
    assert world.keeper.failure == "the zygote hangs (no sign of life for 10 s)"


def test_nobody_is_blamed_for_time_in_which_the_keeper_was_stopped() -> None:
    world = World(hang_timeout_s=10)
    world.pass_time(3, NAMES)
    world.now += 3600
    world.happen()
    world.pass_time(3, NAMES)
    assert world.family.killed == []
    assert world.keeper.failure is None
    # But one that hangs is found all the same, after the whole time.
    world.pass_time(12, [name for name in NAMES if name != "small"])
    assert world.family.killed == ["small"]


def test_one_that_does_not_read_is_killed_unless_that_is_settled() -> None:
    world = World()
    world.happen(Said("large", Stuck(0, 9)))
    assert world.family.killed == []
    world.happen(Said("large", Stuck(0, 10)))
    assert world.family.killed == ["small"]
    world.happen(Said("detokenizer", Stuck(0, 10)))
    assert world.family.killed == ["small"]


def test_a_drain_ends_when_the_front_end_says_so_or_is_gone() -> None:
    world = World()
    world.keeper.drain()
    assert world.heard("front-end") == [Drain()]
    assert not world.keeper.drained
    world.happen(Said("front-end", Drained()))
    assert world.keeper.drained
    world = World()
    world.die("front-end")
    world.keeper.drain()
    assert world.keeper.drained


def test_with_on_failure_stop_the_first_death_is_the_end() -> None:
    world = World(on_failure="stop")
    world.happen(HungUp("small", ""))
    assert world.heard("front-end") == [Down(0)], "its requests fail all the same"
    world.happen(Gone("small", KILLED))
    assert world.keeper.failure == "small died (killed by SIGKILL)"
    assert world.family.started == []


def test_pings_go_to_those_who_have_answered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    world.pass_time(1.0)
    pinged = [name for name, message in world.family.told if isinstance(message, Ping)]
    assert sorted(pinged) == sorted(NAMES)
    world.pass_time(3.0, ["small"])
    pinged = [name for name, message in world.family.told if isinstance(message, Ping)]
    assert pinged.count("small") > 2
    assert pinged.count("large") == 1, "one question at a time"
    assert world.family.probes > 2


def test_an_unexpected_member_is_checked_like_the_first(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.die("small")
    tiny: MemberReady = ready(0, max_visits=1)
    world.happen(Said("small", tiny))
    (up,) = [each for each in world.heard("front-end") if isinstance(each, Up)]
    assert up.ready == tiny
