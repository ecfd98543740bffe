"""The tokenizer manager alone: what it keeps of requests, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from tests.frontend.fakes import NAMES, TOKENIZER, make_config, make_roster
from tests.frontend.test_detokenizer import LENGTH, output
from tests.frontend.test_live_requests import FanOut
from tests.frontend.test_placement import ByText
from tokenrouter.errors import DrainingError, MemberDeadError, RequestError, RoutingError
from tokenrouter.frontend.detokenizer import Decoder
from tokenrouter.frontend.exchange import Exchange
from tokenrouter.frontend.names import resolve
from tokenrouter.frontend.presence import Presence
from tokenrouter.frontend.tokenizer_manager import RoutedTokenizerManager
from tokenrouter.frontend.traffic import Traffic
from tokenrouter.ipc.channels import Inbox, Outbox
from tokenrouter.ipc.messages import DETOKENIZER, PLANNER, Route
from tokenrouter.ipc.supervision import Up
from tokenrouter.subserver.sglang_compat.serving import (
    GenerateReqInput,
    front_end_args,
    sglang_ports,
)


class Manager:
    """A manager between `FanOut` and a decoder; every test runs in one event loop."""

    def __init__(self, folder: Path, sockets: Path) -> None:
        self.config = make_config(folder)
        self.real = RoutedTokenizerManager(front_end_args(self.config), sglang_ports(), NAMES, 16)
        self.fan_out = FanOut()
        homes: Any = self.fan_out
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        address = f"ipc://{sockets / 'tokenizer.sock'}"
        inbox = Inbox(self._context, address, {DETOKENIZER: 0})
        self.outbox = Outbox(self._context, address, DETOKENIZER)
        roster = msgspec.structs.replace(make_roster(), others={PLANNER: 3})
        self.real.connect(homes, Presence(roster, NAMES), inbox, Traffic(self.config))
        self.decoder = Decoder(self.real.tokenizer)

    def ask(
        self, name: str = "demo", route: Route | None = None, **fields: Any
    ) -> tuple[Exchange, AsyncIterator[Any]]:
        route = route or resolve(name, None, self.config)
        exchange = Exchange(route, "text", "max_new_tokens")
        work = GenerateReqInput(**fields)
        work.exchange = exchange
        return exchange, self.real.generate_request(work)

    def answer(self, number: int, text: bytes, finish: Any = None, first: bool = True) -> None:
        rid = self.fan_out.sent[number][0]
        for each in self.decoder.decode([output(rid, text, finish, [] if first else None)]):
            self.real._take(each)

    def close(self) -> None:
        self.real.close()
        self.outbox.close()
        self._context.term()

    @property
    def live(self) -> int:
        return len(self.real.rid_to_state)


Scenario = Callable[[Manager], Coroutine[Any, Any, None]]


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Callable[[Scenario], None]:
    def run(scenario: Scenario) -> None:
        async def play() -> None:
            manager = Manager(folder, tmp_path)
            try:
                await scenario(manager)
                assert manager.live == 0
                assert not manager.decoder.decode_status
            finally:
                manager.close()

        asyncio.run(play())

    return run


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_request_is_forgotten_when_it_ends(run: Callable[[Scenario], None]) -> None:
    async def scenario(manager: Manager) -> None:
        _, answers = manager.ask(text="a")
        first = asyncio.ensure_future(anext(answers))
        await settle()
        assert manager.live == 1
        manager.answer(0, b"xy", LENGTH)
        assert (await first)["text"] == "xy"

    run(scenario)


def test_ids_match_exactly(run: Callable[[Scenario], None]) -> None:
    async def scenario(manager: Manager) -> None:
        _, answers = manager.ask(text=["a", "b"], rid=["1", "10"])
        first = asyncio.ensure_future(anext(answers))
        await settle()
        manager.real.abort_request("1")
        manager.real.abort_request("2")
        assert manager.fan_out.aborted == [0]
        assert list(manager.real.rid_to_state) == ["10"]
        manager.answer(0, b"late", LENGTH)  # on its way when the request was aborted
        manager.answer(1, b"y", LENGTH)
        one, ten = await first
        assert (one["text"], one["meta_info"]["finish_reason"]["type"]) == ("", "abort")
        assert ten["text"] == "y"

    run(scenario)


def test_finishing_an_exchange_aborts_what_is_left(run: Callable[[Scenario], None]) -> None:
    async def scenario(manager: Manager) -> None:
        exchange, answers = manager.ask(text=["a", "b", "c"], stream=True)
        first = asyncio.ensure_future(anext(answers))
        await settle()
        manager.answer(1, b"y", LENGTH)
        assert (await first)["index"] == 1
        manager.real.finish(exchange)
        manager.real.finish(exchange)
        assert manager.fan_out.aborted == [0, 2]
        await settle()  # tasks that SGLang left waiting end, too

    run(scenario)


def placed() -> Route:
    return Route(f"{ByText.__module__}:ByText", (0, 1), 0)


async def sent(manager: Manager, count: int) -> list[Route]:
    """Routes of requests, once there are so many; another thread has a part in them."""
    async with asyncio.timeout(20):
        while len(manager.fan_out.sent) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    return [route for _, route in manager.fan_out.sent]


def test_an_algorithm_may_choose_where_each_prompt_starts(run: Callable[[Scenario], None]) -> None:
    async def scenario(manager: Manager) -> None:
        _, answers = manager.ask(route=placed(), text=["1", "0", "10"], stream=True)
        first = asyncio.ensure_future(anext(answers))
        routes = await sent(manager, 3)
        assert sorted((r.home, r.members) for r in routes) == [(0, (0,)), (1, (0, 1)), (1, (1,))]
        for number in range(3):
            manager.answer(number, b"y", LENGTH)
        await first
        await settle()

    run(scenario)


def test_of_a_chat_it_sees_the_last_message(run: Callable[[Scenario], None]) -> None:
    async def scenario(manager: Manager) -> None:
        exchange, answers = manager.ask(route=placed(), text="0")
        exchange.last_message = "1"
        first = asyncio.ensure_future(anext(answers))
        assert [route.home for route in await sent(manager, 1)] == [1]
        manager.answer(0, b"y", LENGTH)
        await first

    run(scenario)


def test_nothing_is_sent_for_who_left_before_it_was_placed(run: Callable[[Scenario], None]) -> None:
    async def scenario(manager: Manager) -> None:
        exchange, answers = manager.ask(route=placed(), text=["1", "0"])
        exchange.choices = 2
        first = asyncio.ensure_future(anext(answers))
        await asyncio.sleep(0)
        manager.real.finish(exchange)
        ends = [each["meta_info"] for each in await first]
        assert {end["finish_reason"]["type"] for end in ends} == {"abort"}
        assert {end["prompt_tokens"] for end in ends} == {len(TOKENIZER.encode("1"))}
        assert manager.fan_out.sent == []

    run(scenario)


def test_chunks_that_nobody_fetched_in_time_are_joined(run: Callable[[Scenario], None]) -> None:
    async def scenario(manager: Manager) -> None:
        _, answers = manager.ask(text="a", stream=True)
        first = asyncio.ensure_future(anext(answers))
        await settle()
        manager.answer(0, b"v")
        manager.answer(0, b"w", first=False)
        assert (await first)["output_ids"] == [*b"vw"]
        manager.answer(0, b"x", first=False)
        manager.answer(0, b"y", LENGTH, first=False)
        last = await anext(answers)
        assert (last["text"], last["output_ids"]) == ("vwxy", [*b"xy"])
        with pytest.raises(StopAsyncIteration):
            await anext(answers)

    run(scenario)


@pytest.mark.parametrize(
    ("status", "kind"), [(400, RequestError), (500, RoutingError), (503, MemberDeadError)]
)
def test_failures_are_raised_by_their_status(
    run: Callable[[Scenario], None], status: int, kind: type[Exception]
) -> None:
    async def scenario(manager: Manager) -> None:
        _, answers = manager.ask(text="a")
        first = asyncio.ensure_future(anext(answers))
        await settle()
        manager.answer(0, b"", {"type": "abort", "message": "why", "status_code": status})
        with pytest.raises(kind, match="why"):
            await first

    run(scenario)


def test_nothing_of_a_batch_is_sent_before_all_of_it_is_legal(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(manager: Manager) -> None:
        for text in (["a", "b" * 600], ["a", ""]):
            _, answers = manager.ask(text=text)
            with pytest.raises(RequestError, match="text"):
                await anext(answers)
        # One of SGLang's own checks.
        _, answers = manager.ask(text=["a", "b"], rid=["x"])
        with pytest.raises(RequestError, match="rids"):
            await anext(answers)
        assert manager.fan_out.sent == []

    run(scenario)


def test_a_death_fails_what_may_visit_the_member_and_nothing_else(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(manager: Manager) -> None:
        asked = [manager.ask(name, text="a")[1] for name in ("demo", "demo/small", "demo/large")]
        tasks = [asyncio.ensure_future(anext(each)) for each in asked]
        await settle()
        manager.real.lost(1)
        for each in (tasks[0], tasks[2]):
            with pytest.raises(MemberDeadError, match="large died"):
                await each
        assert set(manager.fan_out.aborted) >= {0}, "its surviving home was not told"
        with pytest.raises(MemberDeadError, match="large died and is being restarted"):
            await anext(manager.ask(text="b")[1])
        manager.answer(1, b"xy", LENGTH)
        assert (await tasks[1])["text"] == "xy"
        manager.real.returned(Up(1, 5, make_roster().members[1], 1))
        again = asyncio.ensure_future(anext(manager.ask(text="c")[1]))
        await settle()
        manager.answer(3, b"z", LENGTH)
        assert (await again)["text"] == "z"
        assert manager.real.presence.report()["large"]["restarts"] == 1

    run(scenario)


def test_the_death_of_the_detokenizer_fails_everything(run: Callable[[Scenario], None]) -> None:
    async def scenario(manager: Manager) -> None:
        task = asyncio.ensure_future(anext(manager.ask("demo/small", text="a")[1]))
        await settle()
        manager.real.lost(DETOKENIZER)
        with pytest.raises(MemberDeadError, match="detokenizer died"):
            await task
        with pytest.raises(MemberDeadError, match="detokenizer died"):
            await anext(manager.ask("demo/small", text="b")[1])
        manager.real.returned(Up(DETOKENIZER, 4, None, 1))
        manager.real.presence.check()

    run(scenario)


def test_the_death_of_the_planner_fails_nothing(run: Callable[[Scenario], None]) -> None:
    async def scenario(manager: Manager) -> None:
        task = asyncio.ensure_future(anext(manager.ask("demo/small", text="a")[1]))
        await settle()
        manager.real.lost(PLANNER)
        manager.real.presence.check()
        assert not manager.real.presence.report()["planner"]["up"]
        manager.real.returned(Up(PLANNER, 4, None, 1))
        assert manager.real.presence.report()["planner"]["up"]
        manager.answer(0, b"x", LENGTH)
        assert (await task)["text"] == "x"

    run(scenario)


def test_a_drain_waits_for_the_last_answer_and_takes_nothing_new(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(manager: Manager) -> None:
        _, answers = manager.ask(text="a")
        task = asyncio.ensure_future(anext(answers))
        await settle()
        drained = asyncio.ensure_future(manager.real.drain())
        await settle()
        with pytest.raises(DrainingError, match="takes no more"):
            await anext(manager.ask(text="b")[1])
        assert not drained.done()
        manager.answer(0, b"xy", LENGTH)
        assert (await task)["text"] == "xy"
        with pytest.raises(StopAsyncIteration):
            await anext(answers)
        await asyncio.wait_for(drained, 5)

    run(scenario)
