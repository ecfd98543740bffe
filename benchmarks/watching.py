"""What a running server's members have counted, as `/get_server_info` shows it."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import httpx

from tokenrouter.ipc.measured import from_json
from tokenrouter.ipc.member_state import Measurements

TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Reading:
    """Of all members at about one time; each field has one entry a member, in order.

    ``at`` seconds, monotonic, in the middle of their answers; ``changes``: tables of
    thresholds that the planner has set so far.
    """

    at: float
    thresholds: tuple[int, ...]
    changes: int
    live: int
    measurements: tuple[Measurements, ...]
    expired_waits: int

    @property
    def tokens(self) -> int:
        """Written so far by requests that may visit every member."""
        return sum(kept for each in self.measurements for _, kept in each.hops.values())


def read(url: str) -> Reading:
    """Ask once."""
    answer = httpx.get(f"{url}/get_server_info", timeout=TIMEOUT_S)
    answer.raise_for_status()
    info = answer.json()
    states = [model["state"] for model in info["models"]]
    if None in states:
        sys.exit("a member does not answer; the machine may be overloaded")
    measurements = tuple(from_json(state["measurements"]) for state in states)
    return Reading(
        at=sum(each.at for each in measurements) / len(measurements),
        thresholds=tuple(state["threshold"] for state in states),
        changes=info["plan"]["changes"] if info["plan"] else 0,
        live=max(state["live"] for state in states),
        measurements=measurements,
        expired_waits=sum(state["expired_waits"] for state in states),
    )


def watch(url: str, until: float, period_s: float) -> list[Reading]:
    """Readings every ``period_s`` seconds up to ``until`` (monotonic): one at least."""
    readings = [read(url)]
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(period_s, left))
        readings.append(read(url))
    return readings
