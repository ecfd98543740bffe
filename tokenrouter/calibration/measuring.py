"""Keeps requests in a deployment and reads, before and after, what its members measured.

Members count steps, their times and routing decisions for the throughput model all the time
(`Measurements`); this makes sure that there is something to count, at several concurrencies.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokenrouter.calibration.client import Deployment, first_failure
from tokenrouter.calibration.prompts import Prompt
from tokenrouter.errors import MeasurementError
from tokenrouter.ipc.measured import from_json
from tokenrouter.ipc.messages import Measurements

RAMP_S = 1.0
"""At most, before a window: prompts are computed, and requests spread over the members."""
TICK_S = 0.25
"""Between two movements of a progress bar."""
FEWEST_STEPS = 50
"""Of each model: fewer tell too little of its latency."""
FEWEST_HAND_OVERS = 20

Advance = Callable[[float], None]
"""Told so many more seconds have been measured."""


@dataclass(frozen=True)
class Reading:
    """What the members said at one time, and the thresholds in force then."""

    members: tuple[Measurements, ...]
    thresholds: tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """A time in which ``concurrency`` requests were kept in the deployment.

    ``live``: of them, those past their prompts and in no queue of the front end, on average.
    ``thresholds`` were in force from its beginning to its end; None: they changed.
    """

    concurrency: int
    tokens_per_s: float
    live: float
    thresholds: tuple[int, ...] | None


@dataclass(frozen=True)
class Measured:
    """All windows, and the readings before the first and after the last."""

    windows: tuple[Window, ...]
    before: Reading
    after: Reading


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
) -> Measured:
    """Measure for so many seconds at each concurrency, in routed operation.

    Args:
        max_tokens: longest answer.
        threshold: router threshold of the requests; None: the deployment's.

    Raises:
        MeasurementError: a request failed, a member was restarted, or too little happened.
    """
    asked = itertools.count()
    windows = []
    first = await read(deployment)

    async def keep_asking() -> None:
        for number in asked:
            prompt = prompts[number % len(prompts)]
            await deployment.ask(prompt, max_tokens, threshold=threshold, seed=number)

    for concurrency in concurrencies:
        with first_failure():
            async with asyncio.TaskGroup() as load:
                clients = [load.create_task(keep_asking()) for _ in range(concurrency)]
                await asyncio.sleep(min(RAMP_S, seconds / 2))
                before = await read(deployment)
                for part in _parts(seconds):
                    await asyncio.sleep(part)
                    advance(part)
                after = await read(deployment)
                for client in clients:
                    client.cancel()
        windows.append(_window(concurrency, before, after))
    measured = Measured(tuple(windows), first, await read(deployment))
    check(measured, deployment.facts.members, seconds)
    return measured


def check(measured: Measured, names: Sequence[str], seconds: float) -> None:
    """Make sure that enough happened.

    Raises:
        MeasurementError: it did not; says what, and what helps.
    """
    pairs = list(zip(measured.before.members, measured.after.members, strict=True))
    steps = [_steps(after) - _steps(before) for before, after in pairs]
    if any(after.at < before.at for before, after in pairs) or min(steps) < 0:
        raise MeasurementError("a model was restarted while it was measured; calibrate again")
    handed = sum(
        _handed(after, member) - _handed(before, member)
        for member, (before, after) in enumerate(pairs)
    )
    if not handed:
        raise MeasurementError(
            f"{names[0]} wrote everything: no request was handed over; serve with another "
            "router_threshold (--share 0.1 finds one), or ask other --prompts"
        )
    if handed < FEWEST_HAND_OVERS:
        raise MeasurementError(
            f"only {handed} hand-overs happened, {FEWEST_HAND_OVERS} are needed; measure for "
            f"--seconds {_longer(seconds, FEWEST_HAND_OVERS, handed):g}"
        )
    fewest = min(steps)
    if fewest < FEWEST_STEPS:
        name = names[steps.index(fewest)]
        raise MeasurementError(
            f"only {fewest} steps of {name} were measured, {FEWEST_STEPS} are needed; measure for "
            f"--seconds {_longer(seconds, FEWEST_STEPS, fewest):g}"
        )


def _longer(seconds: float, needed: int, seen: int) -> float:
    """Half as long again as it should take."""
    return float(round(1.5 * seconds * needed / max(seen, 1) + 0.5))


def _steps(of: Measurements) -> int:
    return sum(sums.count for sums in of.steps.values())


def _kept(of: Measurements) -> int:
    return sum(kept for _, kept in of.hops.values())


def _handed(of: Measurements, member: int) -> int:
    return sum(count for to, (count, _) in of.hops.items() if to != member)


def _window(concurrency: int, before: Reading, after: Reading) -> Window:
    rates, live = [], []
    for old, new in zip(before.members, after.members, strict=True):
        elapsed = max(new.at - old.at, 1e-9)
        rates.append((_kept(new) - _kept(old)) / elapsed)
        live.append((new.live_seconds - old.live_seconds) / elapsed)
    same = before.thresholds == after.thresholds
    return Window(concurrency, sum(rates), max(live), after.thresholds if same else None)


def _parts(seconds: float) -> Iterator[float]:
    whole = int(seconds / TICK_S)
    yield from itertools.repeat(TICK_S, whole)
    if rest := seconds - whole * TICK_S:
        yield rest
