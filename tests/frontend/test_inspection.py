"""Asking members: who answers, who does not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tests.frontend.fakes import state_of
from tokenrouter.frontend.inspection import MOST_QUESTIONS, Inspector
from tokenrouter.ipc.messages import DETOKENIZER
from tokenrouter.ipc.operations import Control, Controlled, Inspect, Planned


@dataclass
class Questions:
    """Where the inspector asks; ``answer`` gives the answers it should hear at once."""

    asked: list[tuple[int, int]] = field(default_factory=list)
    questions: list[Inspect | Control] = field(default_factory=list)

    def ask(self, member: int, question: Inspect | Control) -> None:
        self.asked.append((member, question.ticket))
        self.questions.append(question)


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


def test_the_latest_of_the_planner_is_kept() -> None:
    questions: Any = Questions()
    inspector = Inspector(questions, 2)
    assert inspector.planned is None
    for version in (1, 2):
        inspector.receive(Planned(version, [(1, 1)], version, 4, 1.0, "why"))
    assert inspector.planned == Planned(2, [(1, 1)], 2, 4, 1.0, "why")


def test_a_flood_of_questions_shares_the_latest() -> None:
    async def ask() -> None:
        questions: Any = Questions()
        inspector = Inspector(questions, 1)
        waiting = [asyncio.ensure_future(inspector.ask(5)) for _ in range(1000)]
        await asyncio.sleep(0)
        assert len(questions.asked) == MOST_QUESTIONS
        for _, ticket in questions.asked:
            inspector.receive(state_of(ticket, 0))
        answers = await asyncio.gather(*waiting)
        last = questions.asked[-1][1]
        assert [answer[0] for answer in answers[MOST_QUESTIONS:]] == [state_of(last, 0)] * (
            1000 - MOST_QUESTIONS
        )

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
        question = asyncio.ensure_future(inspector.ask(30))
        await asyncio.sleep(0)
        inspector.lost(DETOKENIZER)
        assert await question == [None, None]
        assert await inspector.ask(30) == [None, None]

    asyncio.run(asyncio.wait_for(ask(), 10))


def test_an_action_goes_to_the_members_named_with_their_own_arguments() -> None:
    async def ask() -> None:
        questions: Any = Questions()
        inspector = Inspector(questions, 3)
        arguments = {0: {"a": 1}, 2: {"a": 2}}
        action = asyncio.ensure_future(inspector.control("start_profile", arguments, 5))
        await asyncio.sleep(0)
        assert questions.asked == [(0, 0), (2, 0)]
        assert questions.questions == [
            Control(0, "start_profile", {"a": 1}),
            Control(0, "start_profile", {"a": 2}),
        ]
        answers = {member: Controlled(0, member, True, "done") for member in (2, 0)}
        for answer in answers.values():
            inspector.receive(answer)
        assert await action == answers

    asyncio.run(ask())
