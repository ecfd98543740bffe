"""Asking every member something: what it holds, or to do something between two steps.

Questions go out through `FanOut`; a member's loop answers between two steps, and the
answer comes back over the detokenizer. The planner is not asked: it tells.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenrouter.frontend.fan_out import FanOut
from tokenrouter.ipc.member_state import MemberState
from tokenrouter.ipc.messages import DETOKENIZER
from tokenrouter.ipc.operations import Action, Control, Controlled, Inspect, Planned

HEALTH_TIMEOUT_S = 20.0
"""As SGLang's health check: a long step of a busy member is no failure."""
STATE_TIMEOUT_S = 5.0
MOST_QUESTIONS = 64
"""Open at once; who asks for the members' states then shares the latest question."""

Answer = MemberState | Controlled


@dataclass(slots=True)
class _Question:
    missing: set[int]
    answers: dict[int, Answer] = field(default_factory=dict)
    all_here: asyncio.Event = field(default_factory=asyncio.Event)

    def settle(self, member: int) -> None:
        """Nothing more is expected of ``member``."""
        self.missing.discard(member)
        if not self.missing:
            self.all_here.set()


class Inspector:
    """Asks ``members`` members. ``planned``: the latest that the planner has told, if any."""

    def __init__(self, fan_out: FanOut, members: int) -> None:
        self.planned: Planned | None = None
        self._fan_out, self._members = fan_out, members
        self._tickets = itertools.count()
        self._open: dict[int, _Question] = {}
        self._latest: _Question | None = None
        self._down: set[int] = set()

    def lost(self, process: int) -> None:
        """A member died, or the detokenizer, which brings all answers: nobody waits for them."""
        self._down.add(process)
        for question in self._open.values():
            for member in range(self._members) if process == DETOKENIZER else (process,):
                question.settle(member)

    def returned(self, process: int) -> None:
        """A process is back."""
        self._down.discard(process)

    async def ask(self, timeout_s: float) -> list[MemberState | None]:
        """The state of each member; None for one that is down or has not answered in time."""
        everyone = range(self._members)
        if self._latest is None or len(self._open) < MOST_QUESTIONS:
            self._latest = self._question(everyone)
            answers = await self._ask(self._latest, lambda ticket, _: Inspect(ticket), timeout_s)
        else:
            answers = await _answers(self._latest, timeout_s)
        states = (answers.get(member) for member in everyone)
        return [state if isinstance(state, MemberState) else None for state in states]

    async def control(
        self, action: Action, arguments: Mapping[int, dict[str, Any]], timeout_s: float
    ) -> dict[int, Controlled]:
        """What each member named in ``arguments`` answers, if it is up and does in time."""
        answers = await self._ask(
            self._question(arguments),
            lambda ticket, member: Control(ticket, action, arguments[member]),
            timeout_s,
        )
        return {m: each for m, each in answers.items() if isinstance(each, Controlled)}

    def receive(self, answer: Answer | Planned) -> None:
        """A member's answer (one that comes too late is dropped), or the planner's news."""
        if isinstance(answer, Planned):
            self.planned = answer
        elif question := self._open.get(answer.ticket):
            question.answers[answer.member] = answer
            question.settle(answer.member)

    def _question(self, members: Collection[int]) -> _Question:
        return _Question(set() if DETOKENIZER in self._down else set(members) - self._down)

    async def _ask(
        self,
        question: _Question,
        message: Callable[[int, int], Inspect | Control],
        timeout_s: float,
    ) -> dict[int, Answer]:
        ticket = next(self._tickets)
        self._open[ticket] = question
        try:
            asked = list(question.missing)
            for member in asked:
                self._fan_out.ask(member, message(ticket, member))
            return await _answers(question, timeout_s if asked else 0)
        finally:
            del self._open[ticket]


async def _answers(question: _Question, timeout_s: float) -> dict[int, Answer]:
    try:
        async with asyncio.timeout(timeout_s):
            await question.all_here.wait()
    except TimeoutError:
        pass  # who is missing has not answered
    return question.answers
