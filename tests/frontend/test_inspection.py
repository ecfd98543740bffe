"""Asking members: who answers, who does not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tests.frontend.fakes import state_of
from tokenrouter.frontend.inspection import Inspector


@dataclass
class Questions:
    """Where the inspector asks; ``answer`` gives the answers it should hear at once."""

    asked: list[tuple[int, int]] = field(default_factory=list)

    def inspect(self, member: int, ticket: int) -> None:
        self.asked.append((member, ticket))


def test_answers_come_in_any_order_and_to_the_right_question() -> None:
    async def ask() -> None:
        questions: Any = Questions()
        inspector = Inspector(questions, 2)
        first = asyncio.ensure_future(inspector.ask(5))
        second = asyncio.ensure_future(inspector.ask(5))
        await asyncio.sleep(0)
        assert sorted(questions.asked) == [(0, 0), (0, 1), (1, 0), (1, 1)]
        for member, ticket in reversed(questions.asked):
            inspector.receive(state_of(ticket, member))
        for ticket, question in enumerate((first, second)):
            states = await question
            assert states == [state_of(ticket, 0), state_of(ticket, 1)]

    asyncio.run(ask())


def test_a_silent_member_is_missing_and_a_late_answer_is_dropped() -> None:
    async def ask() -> None:
        questions: Any = Questions()
        inspector = Inspector(questions, 2)
        question = asyncio.ensure_future(inspector.ask(0.05))
        await asyncio.sleep(0)
        inspector.receive(state_of(0, 1))
        assert await question == [None, state_of(0, 1)]
        inspector.receive(state_of(0, 0))

    asyncio.run(ask())


def test_nobody_waits_for_a_member_that_is_down() -> None:
    async def ask() -> None:
        questions: Any = Questions()
        inspector = Inspector(questions, 2)
        question = asyncio.ensure_future(inspector.ask(30))
        await asyncio.sleep(0)
        inspector.receive(state_of(0, 1))
        inspector.lost(0)
        assert await question == [None, state_of(0, 1)]
        inspector.lost(1)
        assert await inspector.ask(30) == [None, None]
        inspector.returned(1)
        question = asyncio.ensure_future(inspector.ask(30))
        await asyncio.sleep(0)
        assert questions.asked[-1] == (1, 2)
        inspector.receive(state_of(2, 1))
        assert await question == [None, state_of(2, 1)]

    asyncio.run(asyncio.wait_for(ask(), 10))
