"""Where requests start whose algorithm chooses that from the prompt."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest

from tests.frontend.fakes import Deployment, deployment, make_config, make_roster
from tokenrouter.errors import RoutingError
from tokenrouter.frontend.placement import Placement, last_text
from tokenrouter.ipc.messages import Route
from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step

ROUTE = Route(f"{__name__}:ByText", (0, 1), 0, seed=7)


class ByText(RoutingScheduler):
    """A text of digits names the members."""

    chooses_members = True

    def choose_members(self, request: Request, text: str) -> Sequence[int]:
        if text == "where":
            text = str(int(threading.current_thread() is threading.main_thread()))
        elif text == "who":
            text = str(int(request.seed == 7 and request.tokens == [5, 6] and not request.position))
        elif text == "exit":
            raise SystemExit(3)
        return [*map(int, text)]

    def route(self, request: Request, step: Step) -> Decision:
        return Decision(1, request.member)


def place(text: str, route: Route = ROUTE) -> Route:
    return asyncio.run(Placement(["a", "b"]).place(route, [5, 6], lambda: text))


def test_the_first_member_chosen_is_the_home():
    assert (place("1").members, place("1").home) == ((1,), 1)
    assert (place("10").members, place("10").home) == ((0, 1), 1)
    assert place("01") == ROUTE


def test_it_is_asked_in_another_thread_about_the_request_as_it_begins():
    assert place("where").home == 0
    assert place("who").home == 1


def test_algorithms_that_choose_nothing_are_not_asked_and_no_text_is_made():
    def text() -> str:
        raise AssertionError("nobody wants it")

    route = Route("entropy", (0, 1), 0, 0.5)
    assert asyncio.run(Placement(["a", "b"]).place(route, [5], text)) is route


@pytest.mark.parametrize(("text", "complaint"), [("", "chose"), ("2", "of 2 members"), ("x", "x")])
def test_a_choice_that_fails_or_is_none_fails_its_request(text: str, complaint: str):
    with pytest.raises(RoutingError, match=rf"choose_members failed: ValueError: .*{complaint}"):
        place(text)


def test_a_choice_that_exits_fails_its_request():
    with pytest.raises(RoutingError, match=r"choose_members failed: SystemExit: 3$"):
        place("exit")


def test_the_text_of_a_chat_is_its_last_message():
    def message(content: Any) -> Any:
        return SimpleNamespace(content=content)

    parts = [SimpleNamespace(type="text", text="b"), SimpleNamespace(type="text", text="c")]
    assert last_text([message("a"), message("b")]) == "b"
    assert last_text([message("a"), message(parts)]) == "b\nc"
    assert last_text([message("a"), message(None)]) is None
    assert last_text([]) is None


@pytest.fixture(scope="module")
def placing(folder: Path) -> Iterator[Deployment]:
    """A deployment that offers `ByText`."""
    by_text = {"algorithm": f"{__name__}:ByText"}
    config = make_config(folder, algorithms={"by_text": by_text})
    with deployment(config, make_roster()) as running:
        yield running


@pytest.fixture
def client(placing: Deployment) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{placing.url}/v1", api_key="none", max_retries=0, timeout=20
    ) as client:
        yield client


def test_a_chats_last_message_chooses(client: openai.OpenAI):
    messages: Any = [{"role": "system", "content": "0"}, {"role": "user", "content": "1"}]
    answer: Any = client.chat.completions.create(model="demo:by_text", messages=messages, n=2)
    assert len(answer.choices) == 2
    assert answer.routing["tokens"]["small"] == 0 < answer.routing["tokens"]["large"]


def test_each_prompt_of_a_batch_chooses(client: openai.OpenAI):
    answer: Any = client.completions.create(model="demo:by_text", prompt=["1", "0"])
    tokens = answer.routing["tokens"]
    assert tokens["large"] > 0 and tokens["small"] > 0


def test_a_choice_that_fails_is_an_error_of_that_request(client: openai.OpenAI):
    with pytest.raises(openai.InternalServerError, match="choose_members failed"):
        client.completions.create(model="demo:by_text", prompt="nowhere")
