"""Runs of a routed pair that is watched while it goes on: for `validate_throughput_model.py`."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import random_model
from loop_cost import hand_over_delays
from served import served
from steady import running
from watching import Reading, read

from tokenrouter.configuration.sources import DEMO_MODELS
from tokenrouter.ipc.member_state import Measurements
from tokenrouter.throughput_model import estimate

NAME = "bench"
NAMES = ("small", "large")
P = 0.35
NOMINAL_MS = (6.0, 27.9)
PERIOD_S = 0.5
START_S = 4.0
"""That a server of timed members takes to start and to end, about."""
HAND_OVERS = 300
"""Whose mean time is that of one."""


@dataclass(frozen=True)
class Deployment:
    """What is served, and for how long a run is watched after its warm-up.

    ``tokens``: length of a request that does not end meanwhile; ``hop_ms``: a hand-over's
    time from a member to an idle one.
    """

    models: Sequence[dict[str, Any]]
    tokens: int
    seconds: float
    warm_up_s: float
    hop_ms: float
    nice: int


@dataclass(frozen=True)
class Run:
    """Readings of one run, whose requests were sent at ``began``; decisions are in ``folder``."""

    concurrency: int
    threshold: int
    began: float
    readings: Sequence[Reading]
    folder: Path

    @property
    def tokens(self) -> int:
        """Written while it was watched."""
        return self.readings[-1].tokens - self.readings[0].tokens

    @property
    def windows(self) -> list[Measurements]:
        """What each member measured meanwhile."""
        ends = (self.readings[0].measurements, self.readings[-1].measurements)
        return [estimate.window(before, after) for before, after in zip(*ends, strict=True)]


def minutes(deployment: Deployment, concurrencies: Sequence[int]) -> float:
    """That every threshold of the large model takes at these concurrencies, about."""
    return sum(concurrencies) * (START_S + deployment.warm_up_s + deployment.seconds) / 60


def run(deployment: Deployment, concurrency: int, threshold: int, folder: Path) -> Run:
    """Serve, wait for the steady state, and watch it."""
    thresholds = (1, threshold)
    config = {
        "served_name": NAME, "algorithm": "random", "router_threshold": P,
        "max_wait_ms": float("inf"), "record_decisions": str(folder),
        "models": [
            {**model, "threshold": each}
            for model, each in zip(deployment.models, thresholds, strict=True)
        ],
    }  # fmt: skip
    with served(config, deployment.nice) as server:
        began = time.monotonic()
        numbers = range(concurrency)
        with running(server.port, NAME, numbers, deployment.tokens) as requests:
            time.sleep(deployment.warm_up_s)
            readings = [read(server.url)]
            while readings[-1].at < readings[0].at + deployment.seconds:
                time.sleep(PERIOD_S)
                readings.append(read(server.url))
                requests.check()
    _check_steady(readings, concurrency)
    return Run(concurrency, threshold, began, readings, folder)


def _check_steady(readings: Sequence[Reading], concurrency: int) -> None:
    first, last = readings[0], readings[-1]
    prompts = [
        after.prefill.count - before.prefill.count
        for before, after in zip(first.measurements, last.measurements, strict=True)
    ]
    if any(prompts) or any(each.live != concurrency for each in readings):
        sys.exit("a request started or ended while it was watched; give a longer warm-up")
    if last.expired_waits:
        sys.exit(f"{last.expired_waits} launches were forced by the maximum wait, which is off")


@contextmanager
def deployment_of(engine: str, seconds: float, nice: int) -> Iterator[Deployment]:
    """What is served for ``engine``; weights are made for it.

    Args:
        seconds: that a run is watched.
        nice: added to the niceness of servers.
    """
    hop_ms = statistics.fmean(hand_over_delays(HAND_OVERS))
    if engine == "timed":
        models = [
            {"name": name, "engine": "timed", "step_ms": ms}
            for name, ms in zip(NAMES, NOMINAL_MS, strict=True)
        ]
        yield Deployment(models, 30_000, seconds, 3.0, hop_ms, nice)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folders = (DEMO_MODELS / "small", random_model.build(Path(scratch), width=960, layers=15))
        models = [
            {"name": name, "model_path": str(folder), "dtype": "float32",
             "max_total_tokens": 20_000}
            for name, folder in zip(NAMES, folders, strict=True)
        ]  # fmt: skip
        yield Deployment(models, 1_900, seconds, 6.0, hop_ms, nice)
