"""The router threshold at which the other models write a wanted share of the tokens.

The same prompts are answered greedily by ``NAME@THRESHOLD`` for one threshold after the other, as
`bisection.py` says, until the share is near enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tokenrouter.calibration.bisection import Answer, Point, answer, next_threshold, point
from tokenrouter.calibration.client import Deployment, Usage, first_failure
from tokenrouter.calibration.prompts import Prompt
from tokenrouter.calibration.scale import Scale
from tokenrouter.errors import ConfigError, MeasurementError

MOST_EVALUATIONS = 14
"""For each wanted share, beyond those that other shares needed."""
Advance = Callable[[], None]
Tell = Callable[[Point], None]
"""Told what a threshold gave."""


async def evaluate(
    deployment: Deployment,
    prompts: Sequence[Prompt],
    threshold: float,
    max_tokens: int,
    concurrency: int,
    advance: Advance,
) -> Point:
    """Have every prompt answered at a threshold, ``concurrency`` at once."""
    free = asyncio.Semaphore(concurrency)

    async def ask(prompt: Prompt) -> Usage:
        async with free:
            usage = await deployment.ask(prompt, max_tokens, threshold=threshold)
        advance()
        return usage

    with first_failure():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(prompt)) for prompt in prompts]
    return point(threshold, [task.result() for task in tasks])


async def calibrate(
    deployment: Deployment,
    prompts: Sequence[Prompt],
    wanted: Sequence[float],
    max_tokens: int,
    concurrency: int,
    advance: Advance,
    tell: Tell,
) -> tuple[list[Answer], list[Point]]:
    """The threshold for each wanted share, and everything that was tried.

    Raises:
        ConfigError: one prompt tells nothing of the spread between prompts.
        MeasurementError: the share does not depend on the threshold, or a prompt failed.
    """
    if len(prompts) < 2:
        raise ConfigError("--prompts: a share has an uncertainty only with two prompts or more")
    facts = deployment.facts
    scale = Scale(*facts.threshold_range, facts.router_threshold)
    points: list[Point] = []
    for share in wanted:
        for _ in range(MOST_EVALUATIONS):
            threshold = next_threshold(points, share, scale)
            if threshold is None or threshold in {each.threshold for each in points}:
                break
            points.append(
                await evaluate(deployment, prompts, threshold, max_tokens, concurrency, advance)
            )
            tell(points[-1])
            points.sort(key=lambda each: each.threshold)
    if len(points) > 1 and len({each.share for each in points}) == 1:
        raise MeasurementError(
            f"{facts.algorithm} gives a share of {points[0].share:.1%} whatever the router "
            "threshold; leave --share out"
        )
    return [answer(points, share, scale) for share in wanted], points
