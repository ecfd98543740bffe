"""When thresholds are solved for anew, and whether members get the result.

Pure: told of messages, of solutions and of the time (seconds); says what to send and what to
solve (`solving.py`). `publishing.py` brings tables to members, `history.py` keeps what they
measured. Damping: a first solution needs some seconds of traffic, later ones ever more,
unless something has changed; a table is changed for a gain only, at most twice in any minute
without a shift that persists, and after each change the next has to wait longer.

Members number what is new and are asked again only after they have answered: a question cannot
get lost alone, as a link that loses a frame ends its reader, which is news (`Down`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tokenrouter.ipc.member_state import Measurements, MemberState
from tokenrouter.ipc.messages import DETOKENIZER, FRONT_END, Message
from tokenrouter.ipc.operations import Inspect, Planned
from tokenrouter.ipc.supervision import Down, News, Up
from tokenrouter.planner.history import CHANGE, History
from tokenrouter.planner.problem import Problem, Solution, Terms
from tokenrouter.planner.publishing import Publisher
from tokenrouter.subserver.tables import Table, row
from tokenrouter.throughput_model import estimate

LOOK_S = 1.0
"""From one question to the members to the next; a tenth of it while a plan is on its way."""
LEAST_S = 1.9
"""Of traffic before the first solution, and after a change: two looks."""
LEAST_STEPS = 25
"""Steps of each model, likewise: they tell p to a fifth, which costs 1 % at most."""
RECENT_S = 3.0
"""What happened in this time is held against what was before."""
STEADY_S = 60.0
"""Solutions are at most so far apart; before, each has three times the traffic of the last."""
MARGIN = 0.015
"""Gain for which thresholds are changed."""
RETREAT = 0.005
"""Gain for which they are given up for the configuration's."""
LIVE_CHANGE = 0.25
"""Relative change of the live requests that has the table made again."""
UNREST = 1.5
"""What counts as a change grows by this with each of the last two minutes: where something
always changes, thresholds do not follow."""
MOST_CHANGES = 2
"""In any minute; but after a shift that persists they count anew."""
PERSISTS_S = 5.0
"""A shift persists if it is so old, and the only one of the last minute."""
HOLD_S = 3.0
"""From a change to the next; twice as long for each other one of the last two minutes."""

logger = logging.getLogger(__name__)


class Controller:
    """Of one deployment, from ``now`` on."""

    def __init__(self, terms: Terms, now: float) -> None:
        self._terms = terms
        count = len(terms.names)
        self._history = History(count)
        self._publisher = Publisher(terms.base, count)
        self._table: Table = terms.base
        self._up, self._asked = set(range(count)), set[int]()
        self._ticket = 0
        self._shifts: list[float] = []
        self._due = now
        self._live = 0
        """For which the table was made; 0: nothing is known of now."""
        self._solving = False
        self._changes: list[float] = []
        self._planned: Planned | None = None
        self._told: Planned | None = None

    @property
    def pause(self) -> float:
        """Seconds until `messages` should be called again."""
        return LOOK_S if self._publisher.settled else LOOK_S / 10

    def hear(self, process: int, message: Message | News, now: float) -> None:
        """A member's answer, or news of any process."""
        if isinstance(message, MemberState):
            self._asked.discard(process)
            self._publisher.heard(process, message.plan)
            if message.measurements is not None:
                self._history.add(process, message.measurements, now)
        elif isinstance(message, Down | Up):
            self._hear_news(message)

    def messages(self, now: float) -> Iterator[tuple[int, Message]]:
        """What to send, and to whom."""
        yield from self._publisher.due(now)
        self._ticket += 1
        for member in sorted(self._up - self._asked):
            self._asked.add(member)
            yield member, Inspect(self._ticket)
        if self._planned is not None:
            self._planned = replace(self._planned, version=self._publisher.version)
            if self._planned != self._told:
                self._told = self._planned
                yield DETOKENIZER, self._planned

    def problem(self, now: float) -> Problem | None:
        """What is to be solved now, if anything."""
        if len(self._up) < len(self._terms.names) or not self._history.span:
            return None
        if not any(window.hops for window in self._history.windows(LOOK_S)):
            self._start_anew(now, now)  # a pause: nobody asks anything
            return None
        self._shifts = [t for t in self._shifts if now - t < 2 * STEADY_S]
        if what := self._history.changed(RECENT_S, CHANGE * UNREST ** len(self._shifts)):
            logger.debug("%s", what)
            self._shifts.append(now)
            self._start_anew(now, now - 1.5 * LOOK_S)
        live = self._live_now()
        moved = self._live and abs(live - self._live) > max(LIVE_CHANGE * self._live, 0.5)
        windows = self._history.windows()
        if (
            self._solving
            or live < 2
            or self._history.span < LEAST_S
            or not (moved or now >= self._due)
            or not self._may_change(now)
            or not self._publisher.settled
            or not _enough(windows)
        ):
            return None
        self._solving = True
        return Problem(self._terms, windows, live, self._table)

    def solved(self, solution: Solution | None, now: float) -> None:
        """What came of the problem; None: it made no sense."""
        self._solving = False
        self._due = now + min(2 * max(self._history.span, LEAST_S), STEADY_S)
        if solution is None:
            return
        self._live = solution.live
        new, old = row(solution.table, solution.live), row(self._table, solution.live)
        wanted = RETREAT if new == row(self._terms.base, solution.live) else MARGIN
        gain = solution.gain
        if self._publisher.unknown or (new != old and solution.change > 1.0 + wanted):
            self._changes = [*self._changes[-15:], now]
            self._table = solution.table
            self._publisher.aim(solution.table, solution.reason)
            logger.info("%s", self._line(solution, new, old))
        else:
            gain /= solution.change
        self._planned = Planned(
            self._publisher.version,
            list(self._table),
            len(self._changes),
            solution.live,
            gain,
            f"{solution.reason} ({solution.method})",
        )

    def _hear_news(self, news: Down | Up) -> None:
        process = news.process
        if process in (FRONT_END, DETOKENIZER):
            self._told = None
        elif process >= 0 and isinstance(news, Down):
            self._up.discard(process)
            self._asked.discard(process)
            self._history.forget(process)
            self._publisher.lost(process)
        elif process >= 0:
            self._up.add(process)
            self._publisher.returned(process)

    def _start_anew(self, now: float, since: float) -> None:
        """What was measured before ``since`` says nothing of ``now``."""
        self._history.begin(since)
        self._due = now
        self._live = 0

    def _live_now(self) -> int:
        """Live requests: the middle of the last three seconds, each of them on average."""
        seconds = range(max(1, min(3, round(self._history.span / LOOK_S))))
        lives = sorted(_mean_live(self._history.windows(LOOK_S, s * LOOK_S)) for s in seconds)
        return round(lives[len(lives) // 2])

    def _may_change(self, now: float) -> bool:
        if not self._changes:
            return True
        since = now - STEADY_S
        shifts = [t for t in self._shifts if t >= since]
        if len(shifts) == 1 and now - shifts[0] >= PERSISTS_S:
            since = shifts[0]
        steady = [t for t in self._changes if t >= since]
        lately = sum(now - t < 2 * STEADY_S for t in self._changes)
        hold = HOLD_S * 2 ** max(lately - 1, 0)
        return len(steady) < MOST_CHANGES and now - self._changes[-1] >= hold

    def _line(self, solution: Solution, new: Sequence[int], old: Sequence[int]) -> str:
        """What is logged of a change."""
        pairs = zip(self._terms.names, new, old, strict=True)
        thresholds = ", ".join(
            f"{name} {now}" + (f" (was {before})" if now != before else "")
            for name, now, before in pairs
        )
        return (
            f"thresholds for {solution.live} live requests: {thresholds}; "
            f"{100 * (solution.gain - 1):.1f} % more tokens/s expected than from thresholds of 1 "
            f"({solution.method}); {solution.reason}"
        )


def _enough(windows: Sequence[Measurements]) -> bool:
    """Whether every model that requests go to was seen to decide often enough."""
    models = estimate.reached(windows)
    return all(
        sum(count for count, _ in windows[model].hops.values()) >= LEAST_STEPS for model in models
    )


def _mean_live(windows: Sequence[Measurements]) -> float:
    return max(each.live_seconds / each.at if each.at > 0 else 0.0 for each in windows)
