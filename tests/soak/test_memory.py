"""Fifty thousand requests: no process keeps anything of them.

The slope of each process's private memory over the requests, after a warm-up, must be far
below what the smallest leak would give; `leaks` has a deployment that leaks that much.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import combinations

import aiohttp
import pytest

from tests.soak import leaks
from tests.soak.deployment import Deployment, timed

pytestmark = [pytest.mark.slow]

CLIENTS = 32
BATCH = 4
"""Requests in a POST, to spare HTTP."""
WARM_UP_S = 60.0
"""Under load: until then the planner compiles, and allocators fill what they had left free."""
REQUESTS, SAMPLES = 50_000, 25
MOST_BYTES = 80.0
"""A request, by the slope."""


async def ask(server: Deployment, posts: int) -> None:
    """So many POSTs of `BATCH` requests each: streams or not, now and then left or wrong."""
    left = iter(range(posts))
    async with aiohttp.ClientSession(server.url) as session:

        async def client() -> None:
            for number in left:
                body = {
                    "model": ("soak", "soak/a", "soak/b")[number % 3],
                    "input_ids": [[65 + number % 26, 66, 67 + i] for i in range(BATCH)],
                    "sampling_params": {"max_new_tokens": 3},
                    "stream": number % 4 == 0,
                }
                if number % 10 == 5:  # leaves
                    body["sampling_params"] = {"max_new_tokens": 500}
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.02), session.post("/generate", json=body):
                            await asyncio.sleep(1)
                elif number % 10 == 7:  # is wrong
                    body["text"] = number
                    async with session.post("/generate", json=body) as answer:
                        assert answer.status == 400
                else:
                    async with session.post("/generate", json=body) as answer:
                        data = await answer.read()
                        assert answer.status == 200, data
                        assert b"error" not in data, data

        await asyncio.gather(*(client() for _ in range(CLIENTS)))


def slopes(server: Deployment) -> Mapping[str, float]:
    """Bytes a request by which each process grows, while it serves `REQUESTS`."""
    step = REQUESTS // SAMPLES // BATCH
    warm = time.monotonic() + WARM_UP_S
    while time.monotonic() < warm:
        asyncio.run(ask(server, step))
    memory: dict[str, list[int]] = {}
    for _ in range(SAMPLES):
        asyncio.run(ask(server, step))
        for name, size in server.private_bytes().items():
            memory.setdefault(name, []).append(size)
    found = {name: theil_sen(sizes) / (step * BATCH) for name, sizes in memory.items()}
    print(
        {name: f"{slope:.0f} B, {memory[name][-1] / 2**20:.1f} MB" for name, slope in found.items()}
    )
    return found


def theil_sen(values: Sequence[float]) -> float:
    """The median slope of all pairs: jumps of an allocator do not move it."""
    pairs = combinations(enumerate(values), 2)
    return statistics.median((b - a) / (j - i) for (i, a), (j, b) in pairs)


CONFIG = timed(0, 0, algorithm="entropy", router_threshold=0.6)


@pytest.mark.timeout(600)
def test_a_small_leak_shows() -> None:
    with Deployment(CONFIG, **leaks.PROGRAMS) as server:
        found = slopes(server)
        for name in ("a", "detokenizer", "front-end"):
            assert found[name] > MOST_BYTES, found


@pytest.mark.timeout(600)
def test_memory_does_not_grow() -> None:
    with Deployment(CONFIG) as server:
        found = slopes(server)
        assert max(found.values()) < MOST_BYTES, found
