"""Stretches of time in which a deployment was measured, and whether enough happened in them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tokenrouter.errors import MeasurementError
from tokenrouter.ipc.member_state import Measurements
from tokenrouter.throughput_model import estimate

FEWEST_STEPS = 50
"""Of each model: fewer tell too little of its latency."""
FEWEST_HAND_OVERS = 20


@dataclass(frozen=True)
class Reading:
    """What the members have measured up to one time, and the thresholds in force then."""

    members: tuple[Measurements, ...]
    thresholds: tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """A time in which ``concurrency`` requests were kept in the deployment.

    ``members``: what each measured in it. ``thresholds``: in force from its beginning to its
    end; None: they changed. ``parts``: tokens/s in each of equally long parts of it.
    """

    concurrency: int
    members: tuple[Measurements, ...]
    thresholds: tuple[int, ...] | None
    parts: tuple[float, ...] = ()

    @property
    def tokens_per_s(self) -> float:
        """Committed tokens a second, of all requests and members together."""
        return _rate(self.members)

    @property
    def stderr(self) -> float | None:
        """Of `tokens_per_s`, by batch means; None: there are no parts to tell it from."""
        count = len(self.parts)
        return statistics.stdev(self.parts) / math.sqrt(count) if count > 1 else None

    @property
    def live(self) -> float:
        """Requests that were past their prompts, and in no queue of the front end, on average."""
        return max(measured.live_seconds / measured.at for measured in self.members)


def between(concurrency: int, readings: Sequence[Reading]) -> Window:
    """The time from the first of two or more readings to the last.

    Raises:
        MeasurementError: a member was restarted in it.
    """
    first, last = readings[0], readings[-1]
    parts = tuple(_rate(_difference(old, new)) for old, new in pairwise(readings))
    same = all(each.thresholds == first.thresholds for each in readings)
    return Window(concurrency, _difference(first, last), first.thresholds if same else None, parts)


def _difference(before: Reading, after: Reading) -> tuple[Measurements, ...]:
    pairs = list(zip(before.members, after.members, strict=True))
    if any(_begun_again(old, new) for old, new in pairs):
        raise MeasurementError("a model was restarted while it was measured; calibrate again")
    return tuple(estimate.window(old, new) for old, new in pairs)


def _rate(members: Sequence[Measurements]) -> float:
    """Tokens that all of them kept a second, each by its own clock."""
    return sum(sum(kept for _, kept in each.hops.values()) / each.at for each in members)


def totals(windows: Sequence[Window]) -> list[Measurements]:
    """What each member measured in all of them."""
    every = zip(*(window.members for window in windows), strict=True)
    return [estimate.total(members) for members in every]


def check(windows: Sequence[Window], names: Sequence[str]) -> None:
    """Make sure that enough happened to tell latencies and routing.

    Raises:
        MeasurementError: it did not; says what, and what helps.
    """
    members = totals(windows)
    seconds = max(measured.at for measured in members) / len(windows)
    handed = sum(count for to, (count, _) in members[0].hops.items() if to != 0)
    steps = [_steps(measured) for measured in members]
    if not handed or not all(steps):
        unused = ", ".join(
            name for name, count in zip(names[1:], steps[1:], strict=True) if not count
        )
        raise MeasurementError(
            f"no request was handed over to {unused or 'another model'}; serve with another "
            "router_threshold (--share 0.1 finds one), or ask other --prompts"
        )
    if handed < FEWEST_HAND_OVERS:
        raise MeasurementError(
            f"only {handed} hand-overs happened, {FEWEST_HAND_OVERS} are needed; measure for "
            f"--seconds {_longer(seconds, FEWEST_HAND_OVERS, handed)}"
        )
    fewest = min(steps)
    if fewest < FEWEST_STEPS:
        raise MeasurementError(
            f"only {fewest} steps of {names[steps.index(fewest)]} were measured, {FEWEST_STEPS} "
            f"are needed; measure for --seconds {_longer(seconds, FEWEST_STEPS, fewest)}"
        )


def _begun_again(before: Measurements, after: Measurements) -> bool:
    return (
        after.at <= before.at
        or after.live_seconds < before.live_seconds
        or _steps(after) < _steps(before)
    )


def _steps(of: Measurements) -> int:
    return sum(sums.count for sums in of.steps.values())


def _longer(seconds: float, needed: int, seen: int) -> int:
    """Half as long again as it should take."""
    return math.ceil(1.5 * seconds * needed / seen)
