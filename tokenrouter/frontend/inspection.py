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
    answers: list[MemberState | None]
    all_here: asyncio.Event = field(default_factory=asyncio.Event)


class Inspector:
    """Asks ``members`` members."""

    def __init__(self, fan_out: FanOut, members: int) -> None:
        self._fan_out, self._members = fan_out, members
        self._tickets = itertools.count()
        self._open: dict[int, _Question] = {}

    async def ask(self, timeout_s: float) -> list[MemberState | None]:
        """The state of each member; None for one that has not answered in time."""
        ticket = next(self._tickets)
        question = self._open[ticket] = _Question([None] * self._members)
        try:
            for member in range(self._members):
                self._fan_out.inspect(member, ticket)
            async with asyncio.timeout(timeout_s):
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
            if None not in question.answers:
                question.all_here.set()
