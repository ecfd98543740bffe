"""Who is let in, who waits, and who has the members alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tokenrouter.errors import ConflictError, OverloadedError, RequestError
from tokenrouter.frontend.admission import Admission
from tokenrouter.frontend.exchange import Exchange
from tokenrouter.ipc.messages import Route

ROUTE = Route("single", (0,), 0)


def exchange(choices: int = 1) -> Exchange:
    return Exchange(ROUTE, "prompt", "max_tokens", "id", choices=choices)


def run(scenario: Callable[[Admission], Coroutine[Any, Any, None]], limit: int = 4) -> None:
    async def within_time() -> None:
        async with asyncio.timeout(5):
            await scenario(Admission(limit))

    asyncio.run(within_time())


def test_requests_are_counted_not_exchanges() -> None:
    admission = Admission(4)
    three, one = exchange(3), exchange(1)
    admission.enter(three)
    with pytest.raises(OverloadedError, match="holds 3 requests, of at most 4") as refused:
        admission.enter(exchange(2))
    assert (refused.value.status, refused.value.retry_after_s) == (429, 1)
    admission.enter(one)
    assert admission.held == 4
    for _ in range(2):  # the second time without effect
        admission.leave(three)
    assert admission.held == 1
    admission.enter(exchange(3))


def test_what_never_fits_is_told_so() -> None:
    with pytest.raises(RequestError, match="at most 4 at once") as refused:
        Admission(4).enter(exchange(5))
    assert (refused.value.status, refused.value.field) == (400, "prompt")


def test_nobody_begins_while_somebody_is_alone() -> None:
    async def scenario(admission: Admission) -> None:
        late = exchange()
        async with admission.alone():
            admission.enter(late)
            begins = asyncio.ensure_future(admission.begin(late))
            await asyncio.sleep(0.01)
            assert not begins.done()
            await admission.begin(exchange())  # a probe, which was not counted in
        await begins

    run(scenario)


def test_nobody_is_alone_while_requests_are_served() -> None:
    async def scenario(admission: Admission) -> None:
        early, waiting = exchange(2), exchange()
        admission.enter(early)
        await admission.begin(early)
        with pytest.raises(ConflictError, match="2 requests are being served"):
            async with admission.alone():
                pytest.fail("not alone")
        admission.enter(waiting)
        await admission.begin(waiting)  # the refusal has let everybody in again
        for each in (early, waiting):
            admission.leave(each)
        async with admission.alone():
            pass

    run(scenario)


def test_patience_waits_for_the_last_to_leave() -> None:
    async def scenario(admission: Admission) -> None:
        last = exchange()
        admission.enter(last)
        await admission.begin(last)
        asyncio.get_running_loop().call_later(0.02, admission.leave, last)
        async with admission.alone(patience_s=5):
            assert not admission.exchanges

    run(scenario)


def test_a_pause_holds_back_and_outlasts_an_action() -> None:
    async def scenario(admission: Admission) -> None:
        admission.pause()
        held = exchange()
        admission.enter(held)
        begins = asyncio.ensure_future(admission.begin(held))
        async with admission.alone():
            pass
        await asyncio.sleep(0.01)
        assert not begins.done()
        admission.resume()
        await begins

    run(scenario)


def test_a_resume_during_an_action_waits_for_its_end() -> None:
    async def scenario(admission: Admission) -> None:
        admission.pause()
        held = exchange()
        admission.enter(held)
        begins = asyncio.ensure_future(admission.begin(held))
        async with admission.alone():
            admission.resume()
            await asyncio.sleep(0.01)
            assert not begins.done()
        await begins

    run(scenario)
