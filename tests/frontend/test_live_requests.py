"""What becomes of requests while homes serve them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tokenrouter.frontend.live_requests
from tests.frontend.fakes import make_config
from tokenrouter.frontend.exchange import Exchange, Live
from tokenrouter.frontend.live_requests import ABORTED, LiveRequests
from tokenrouter.frontend.traffic import Traffic
from tokenrouter.ipc.messages import DETOKENIZER, Route, Sampling, Text
from tokenrouter.ipc.supervision import Up

BOTH, LARGE = Route("random", (0, 1), 0), Route("single", (1,), 1)
STOP = {"type": "stop", "matched": 1}


class FanOut:
    """Homes that never answer by themselves."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Route]] = []
        self.aborted: list[int] = []

    def submit(
        self, rid: str, prompt: Sequence[int], sampling: Sampling, route: Route, stream: bool
    ) -> int:
        self.sent.append((rid, route))
        return len(self.sent) - 1

    def abort(self, uid: int, home: int) -> None:
        self.aborted.append(uid)

    def lost(self, process: int) -> None:
        """Whoever it is, it is told nothing here anyway."""

    def returned(self, up: Up) -> None:
        """As above."""

    def close(self) -> None:
        """Nothing to close."""


class Requests:
    """Live requests of one exchange, ``0``, ``1`` ..., and what their homes were told."""

    def __init__(self, folder: Path) -> None:
        self.traffic = Traffic(make_config(folder))
        self.fan_out = FanOut()
        homes: Any = self.fan_out
        self.real = LiveRequests(homes, self.traffic)
        self.exchange = Exchange(BOTH, "text", "max_new_tokens", ["a", "b"], choices=2)

    def submit(self, route: Route = BOTH, stream: bool = True) -> Live:
        number = len(self.exchange.rids)
        live = Live(self.exchange, str(number), [1, 2], Sampling(8), route, stream, number)
        self.real.submit(live)
        return live


@pytest.fixture
def requests(folder: Path) -> Requests:
    return Requests(folder)


def text(rid: str, characters: str, length: int, finish: dict[str, Any] | None = None) -> Text:
    return Text(rid, characters, length, [7] * len(characters), finish, 2, 1, [length, 0], 0)


def test_text_joins_the_answer_until_its_last(requests: Requests) -> None:
    live = requests.submit()
    assert (requests.fan_out.sent, requests.exchange.lives) == ([("0", BOTH)], [live])
    requests.real.receive(text("0", "abc", 3))
    assert (live.text, live.event.is_set()) == ("abc", True)
    requests.real.receive(text("0", "d", 2, STOP))
    assert (live.text, live.tokens, live.finish) == ("ab", [7] * 4, STOP)
    assert not requests.real.by_rid
    assert requests.traffic.models["demo"].outcomes == {"stop": 1}


def test_an_end_reaches_client_home_and_counts_once(requests: Requests) -> None:
    live = requests.submit()
    requests.real.end("0", ABORTED)
    requests.real.end("0", ABORTED)
    requests.real.receive(text("0", "late", 4, STOP))
    assert (live.finish, live.text, live.prompt_tokens) == (ABORTED, "", 2)
    assert requests.fan_out.aborted == [0]
    assert requests.traffic.models["demo"].outcomes == {"abort": 1}


def test_all_end(requests: Requests) -> None:
    lives = [requests.submit(), requests.submit()]
    requests.real.end_all(ABORTED)
    assert [live.finish for live in lives] == [ABORTED, ABORTED]


@pytest.mark.parametrize(("rid", "left"), [("a", ["1"]), ("1", ["0"]), ("x", ["0", "1"])])
def test_abort_takes_the_names_of_client_and_answer(
    requests: Requests, rid: str, left: list[str]
) -> None:
    requests.submit()
    requests.submit()
    assert requests.real.abort(requests.exchange, rid) == 2 - len(left)
    assert list(requests.real.by_rid) == left


def test_an_abort_without_stream_waits_for_what_was_written(requests: Requests) -> None:
    async def scenario() -> None:
        live, other = requests.submit(stream=False), requests.submit(stream=False)
        assert requests.real.abort(requests.exchange, "a") == 1
        assert requests.real.abort(requests.exchange, "0") == 0
        assert (live.finish, requests.fan_out.aborted) == (None, [0])
        requests.real.receive(text("0", "abc", 3, ABORTED))
        assert (live.text, live.finish, other.finish) == ("abc", ABORTED, None)
        requests.real.abort_all()
        requests.real.abort_all()
        assert requests.fan_out.aborted == [0, 1]
        requests.real.receive(text("1", "whole", 5, STOP))  # on its way to here meanwhile
        assert (other.text, other.finish) == ("whole", STOP)

    asyncio.run(scenario())
    assert not requests.real.by_rid
    assert requests.traffic.models["demo"].outcomes == {"abort": 1, "stop": 1}


def test_a_home_that_does_not_answer_an_abort_is_not_waited_for(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenrouter.frontend.live_requests, "ABORT_S", 0.01)

    async def scenario() -> None:
        live = requests.submit(stream=False)
        requests.real.abort_all()
        await asyncio.wait_for(live.event.wait(), 5)
        requests.real.receive(text("0", "late", 4, STOP))
        assert (live.text, live.finish, live.prompt_tokens) == ("", ABORTED, 2)

    asyncio.run(scenario())
    assert not requests.real.by_rid
    assert requests.fan_out.aborted == [0]


def test_a_home_that_dies_over_an_abort_fails_the_request(requests: Requests) -> None:
    async def scenario() -> None:
        live = requests.submit(stream=False)
        requests.real.abort_all()
        requests.real.lost(0, "it")
        assert (live.finish or {})["status_code"] == 503

    asyncio.run(scenario())
    assert not requests.real.by_rid


def test_an_abort_ends_a_stream_at_once(requests: Requests) -> None:
    live = requests.submit()
    requests.real.abort_all()
    assert (live.finish, requests.fan_out.aborted) == (ABORTED, [0])


@pytest.mark.parametrize(("process", "left"), [(0, ["1"]), (1, []), (DETOKENIZER, [])])
def test_a_death_ends_what_may_need_the_process(
    requests: Requests, process: int, left: list[str]
) -> None:
    lives = [requests.submit(), requests.submit(LARGE)]
    requests.real.lost(process, "it")
    assert list(requests.real.by_rid) == left
    finish = lives[0].finish or {}
    assert (finish["status_code"], finish["message"]) == (
        503,
        "it died; the request may be retried",
    )
