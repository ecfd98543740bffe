"""Keeps requests in a deployment and reads, before and after, what its members measured.

Members count steps, their times and routing decisions for the throughput model all the time
(`Measurements`); this makes sure that there is something to count, at several concurrencies.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tokenrouter.calibration.client import Deployment, first_failure
from tokenrouter.calibration.prompts import Prompt
from tokenrouter.calibration.windows import Reading, Window, between, check
from tokenrouter.errors import MeasurementError
from tokenrouter.ipc.measured import from_json

RAMP_S = 1.0
"""At most, before a window: prompts are computed, and requests spread over the members."""
PARTS, PART_S = 10, 0.5
"""Into which a window is cut to tell how far its throughput may be off; their shortest."""
TICK_S = 0.25
"""Between two movements of a progress bar."""
Advance = Callable[[float], None]
"""Told so many more seconds have been measured."""


async def read(deployment: Deployment) -> Reading:
    """What the members measured so far.

    Raises:
        MeasurementError: one does not answer, or measures nothing.
    """
    states: list[tuple[str, dict[str, Any] | None]] = [
        (model["name"], model["state"]) for model in (await deployment.info())["models"]
    ]
    if silent := [name for name, state in states if state is None]:
        raise MeasurementError(
            f"{', '.join(silent)}: does not answer; see /health and the server's log"
        )
    told = [state for _, state in states if state is not None and state.get("measurements")]
    if len(told) < len(states):
        raise MeasurementError("the server's members measure nothing; serve with this version")
    return Reading(
        tuple(from_json(state["measurements"]) for state in told),
        tuple(int(state["threshold"]) for state in told),
    )


async def measure(
    deployment: Deployment,
    prompts: Sequence[Prompt],
    concurrencies: Sequence[int],
    seconds: float,
    max_tokens: int,
    threshold: float | None,
    advance: Advance,
) -> list[Window]:
    """Measure for so many seconds at each concurrency, in routed operation.

    Args:
        max_tokens: longest answer.
        threshold: router threshold of the requests; None: the deployment's.

    Raises:
        MeasurementError: a request failed, a member was restarted, or too little happened.
    """
    asked = itertools.count()
    windows = []

    async def keep_asking() -> None:
        for number in asked:
            prompt = prompts[number % len(prompts)]
            await deployment.ask(prompt, max_tokens, threshold=threshold, seed=number)

    for concurrency in concurrencies:
        with first_failure():
            async with asyncio.TaskGroup() as load:
                clients = [load.create_task(keep_asking()) for _ in range(concurrency)]
                await asyncio.sleep(min(RAMP_S, seconds / 2))
                readings = [await read(deployment)]
                for duration in _parts(seconds):
                    for tick in _ticks(duration):
                        await asyncio.sleep(tick)
                        advance(tick)
                    readings.append(await read(deployment))
                for client in clients:
                    client.cancel()
        windows.append(between(concurrency, readings))
    check(windows, deployment.facts.members)
    return windows


def _parts(seconds: float) -> list[float]:
    """`PARTS` of ``seconds``, or fewer if they were shorter than `PART_S`; one at least."""
    count = min(PARTS, max(1, int(seconds / PART_S)))
    return [seconds / count] * count


def _ticks(seconds: float) -> Iterator[float]:
    whole = int(seconds / TICK_S)
    yield from itertools.repeat(TICK_S, whole)
    if rest := seconds - whole * TICK_S:
        yield rest
