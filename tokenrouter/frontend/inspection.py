"""Asking every member what it holds: for operators, for tests, and as a sign of life.

Questions go out through `FanOut`; a member's loop answers between two steps, and the
answer comes back over the detokenizer.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field

from tokenrouter.frontend.fan_out import FanOut
from tokenrouter.ipc.messages import MemberState

HEALTH_TIMEOUT_S = 20.0
"""As SGLang's health check: a long step of a busy member is no failure."""
STATE_TIMEOUT_S = 5.0


@dataclass(slots=True)
class _Question:
    missing: set[int]
    answers: list[MemberState | None]
    all_here: asyncio.Event = field(default_factory=asyncio.Event)

    def settle(self, member: int) -> None:
        """Nothing more is expected of ``member``."""
        self.missing.discard(member)
        if not self.missing:
            self.all_here.set()


class Inspector:
    """Asks ``members`` members."""

    def __init__(self, fan_out: FanOut, members: int) -> None:
        self._fan_out, self._members = fan_out, members
        self._tickets = itertools.count()
        self._open: dict[int, _Question] = {}
        self._down: set[int] = set()

    def lost(self, member: int) -> None:
        """A member died: nobody waits for its answers."""
        self._down.add(member)
        for question in self._open.values():
            question.settle(member)

    def returned(self, member: int) -> None:
        """A member is back."""
        self._down.discard(member)

    async def ask(self, timeout_s: float) -> list[MemberState | None]:
        """The state of each member; None for one that is down or has not answered in time."""
        ticket = next(self._tickets)
        asked = set(range(self._members)) - self._down
        question = self._open[ticket] = _Question(asked, [None] * self._members)
        try:
            for member in list(asked):
                self._fan_out.inspect(member, ticket)
            async with asyncio.timeout(timeout_s if asked else 0):
                await question.all_here.wait()
        except TimeoutError:
            pass  # the answer says who is missing
        finally:
            del self._open[ticket]
        return question.answers

    def receive(self, state: MemberState) -> None:
        """A member's answer; one that comes too late is dropped."""
        if question := self._open.get(state.ticket):
            question.answers[state.member] = state
            question.settle(state.member)
