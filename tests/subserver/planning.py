"""Deployments whose thresholds change while they serve, at another moment for each member.

What the planner sends, and when, the real `Publisher` says; it hears of members through links
with random delays, and dies and returns as they do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from tests.subserver.harness import Stall
from tests.subserver.mortal import Frame, Mortal
from tokenrouter.ipc.member_state import MemberState
from tokenrouter.ipc.messages import PLANNER, SUPERVISOR, Message
from tokenrouter.ipc.operations import Inspect
from tokenrouter.ipc.supervision import Down, Up
from tokenrouter.planner.publishing import Publisher
from tokenrouter.subserver.tables import fixed_table

Table = list[tuple[int, ...]]
TURNS_A_SECOND = 20.0
"""Of the publisher, which sends again what is not confirmed."""


class Planned(Mortal):
    """With a planner that brings about one table of `pending` after the other.

    Attributes:
        published: latest version that any planner has sent.
        fragile: how likely it is that a planner dies while a new plan is on its way.
        planner_starts: how often the planner was started.
        given_up: whether it is not started again.
    """

    def __init__(self, thresholds: Sequence[int], **options: Any) -> None:
        super().__init__(thresholds, **options)
        self._count = len(thresholds)
        members = range(self._count)
        links = [*((PLANNER, m) for m in members), *((m, PLANNER) for m in members)]
        self.wires |= {link: deque() for link in links}
        self._speed |= dict.fromkeys(links, 1)
        self.pending: list[Table] = []
        self.published = 0
        self.fragile = 0.0
        self.given_up = False
        self.planner_starts = 0
        self._base = fixed_table(thresholds)
        self._goal: Table = self._base
        self._planner_up = False
        self.start_planner()

    def turn(self) -> bool:
        """As `Deployment.turn`.

        Raises:
            Stall: requests wait, and nobody that is alive has anything to do or to hear.
        """
        quiet = not self.awake and not any(self.wires.values())
        if quiet and self.unfinished and not self._dead():
            raise Stall(f"{self.unfinished} requests wait for nothing")
        return super().turn()

    def look(self) -> None:
        """What the planner does between two turns, if it gets to it."""
        if not self._planner_up or self.rng.random() < 0.5:
            return
        self._hear_news()
        publisher, everyone = self.publisher, self._reported.issuperset(range(self._count))
        for member, plan in publisher.due(self.now / TURNS_A_SECOND):
            # The first table is never below what members hold: all is safe, however it goes.
            risk = self.fragile if self._aims > 1 else self.fragile / 5
            if plan.version > self.published and self.rng.random() < risk:
                dies = partial(self.kill_planner, for_good=self.rng.random() < 0.3)
                self.at(self.now + self.rng.uniform(0, 20), dies)
            self.published = max(self.published, plan.version)
            self._send(member, plan)
        if not publisher.settled or self.pending or not self._reported.issuperset(self._known):
            for member in sorted(self._known.keys() - self._asked):
                self._asked.add(member)
                self._send(member, Inspect(0))
        all_up = len(self._known) == self._count
        if self.pending and not self._solving and publisher.settled and all_up and everyone:
            self._solving = True
            table = self.pending.pop(0)
            later = self.now + self.rng.expovariate(1 / 20)
            self.at(later, partial(self._solved, self.planner_starts, table))

    def start_planner(self) -> None:
        """It knows who is there, and nothing else."""
        self._planner_up = True
        self.planner_starts += 1
        self.publisher = Publisher(self._base, self._count)
        self._known = {m: g for m, g in enumerate(self.generations) if g >= 0}
        self._news: deque[Down | Up] = deque()
        self._asked, self._reported = set[int](), set[int]()
        self._solving, self._aims = False, 0
        for dead in self._dead():
            self.publisher.lost(dead)
        for member in self._known:
            if self.planner_starts > 1:
                self._arrive(member, SUPERVISOR, Up(PLANNER, self.planner_starts))
            else:
                self._meet_planner(member)

    def kill_planner(self, for_good: bool) -> None:
        """It dies now; what it had sent arrives in part. Unless for good, it is back later."""
        if not self._planner_up:
            return
        self._planner_up = False
        for member in range(self._count):
            wire = self.wires[PLANNER, member]
            for _ in range(self.rng.randint(0, len(wire))):
                self.carry(PLANNER, member)
            wire.clear()
            self.wires[member, PLANNER].clear()
            if member not in self._dead():
                self._arrive(member, SUPERVISOR, Down(PLANNER))
        if for_good:
            self.pending.clear()
            self.at(self.now + self.rng.expovariate(1 / 50), self._give_up)
        else:
            self.pending.insert(0, self._goal)
            self.at(self.now + self.rng.expovariate(1 / 300), self.start_planner)

    def _give_up(self) -> None:
        self.given_up = True
        for member in range(self._count):
            self._arrive(member, SUPERVISOR, Down(PLANNER, for_good=True))

    def carry(self, sender: int, receiver: int) -> None:
        if PLANNER not in (sender, receiver):
            super().carry(sender, receiver)
            return
        frame: Any = self.wires[sender, receiver].popleft()
        if receiver != PLANNER:
            if frame.ends == (self.planner_starts, self.generations[receiver]):
                for message in frame:
                    self._arrive(receiver, PLANNER, message)
            return
        self._hear_news()
        if frame.ends == (self._known.get(sender), self.planner_starts):
            for message in frame:
                assert isinstance(message, MemberState)
                self._asked.discard(sender)
                self._reported.add(sender)
                self.publisher.heard(sender, message.plan)

    def kill(self, member: int) -> None:
        if member in self._dead():
            return
        super().kill(member)
        wire = self.wires[member, PLANNER]
        for _ in range(self.rng.randint(0, len(wire))):
            self.carry(member, PLANNER)
        wire.clear()
        self._news.append(Down(member))

    def _return(self, member: int) -> None:
        super()._return(member)
        self._news.append(Up(member, self.generations[member]))
        self._meet_planner(member)

    def _meet_planner(self, member: int) -> None:
        if self._planner_up:
            links: Any = self.links[member]
            links.known[PLANNER] = self.planner_starts

    def _hear_news(self) -> None:
        while self._news:
            news = self._news.popleft()
            if isinstance(news, Up):
                self._known[news.process] = news.generation
                self.publisher.returned(news.process)
            else:
                self._known.pop(news.process)
                self._asked.discard(news.process)
                self._reported.discard(news.process)
                self.publisher.lost(news.process)

    def _send(self, member: int, message: Message) -> None:
        frame = Frame([message])
        frame.ends = self.planner_starts, self._known[member]
        self.wires[PLANNER, member].append(frame)

    def _solved(self, start: int, table: Table) -> None:
        if self._planner_up and start == self.planner_starts:
            self._goal, self._solving = table, False
            self._aims += 1
            self.publisher.aim(table, "at random")
