"""The timed pair under given or automatic thresholds, watched while N requests go on and on.

Used by `auto_thresholds.py`. Contestants that watch the same numbers of requests have the same
prompts and coins; `intervals` pairs their blocks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from intervals import Blocks, Estimate, common_blocks, cut, pooled_ratio
from served import served
from steady import running
from watching import Reading, watch

from tokenrouter.throughput_model.count_simulation import simulate
from tokenrouter.throughput_model.parameters import Latency, Model, System, Thresholds
from tokenrouter.throughput_model.search.search import feasible

NAME = "bench"
NAMES = ("small", "large")
STEP_MS = (6.0, 27.9)
P = 0.35
AUTO = "auto"
Vector = Thresholds | str
"""Thresholds, or `AUTO`."""
ONES: Vector = (1, 1)
SETTLE_S = 10.0
"""From the first request: automatic thresholds have settled, and prompts are computed."""
TOKENS = 30_000
"""Asked for by each request: more than it gets."""
PERIOD_S = 0.5
START_S = 4.0
"""That a server takes to start and to end, about."""
EVENTS = 100_000
LEADERS, EXHAUSTIVE = 5, 4
"""Vectors predicted to be fastest that are tried; requests up to which all are."""


@dataclass(frozen=True)
class Traffic:
    """N requests with the coin of probability ``p``; ``first``: number of the first prompt."""

    concurrency: int
    p: float = P
    first: int = 0

    @property
    def model(self) -> str:
        """What they ask for."""
        return f"{NAME}@{self.p}"

    @property
    def numbers(self) -> range:
        """Of their prompts."""
        return range(self.first, self.first + self.concurrency)


@dataclass(frozen=True)
class Turn:
    """What one contestant did; ``began``: when its requests were sent (seconds, monotonic)."""

    vector: Vector
    began: float
    readings: Sequence[Reading]

    def blocks(self, size: int, skip_s: float) -> Blocks:
        """Of what was written from ``skip_s`` seconds after the beginning on."""
        start = self.readings[0].tokens
        kept = [each for each in self.readings if each.at >= self.began + skip_s]
        return cut([each.at for each in kept], [each.tokens - start for each in kept], size)

    def written(self, skip_s: float) -> int:
        """Tokens from then on."""
        kept = [each for each in self.readings if each.at >= self.began + skip_s]
        return kept[-1].tokens - kept[0].tokens


def system_of(p: float = P, step_ms: Sequence[float] = STEP_MS) -> System:
    """`random` between models of these latencies."""
    models = tuple(Model(name, Latency(ms)) for name, ms in zip(NAMES, step_ms, strict=True))
    return System(models, [[1 - p, p], [1, 0]], [[1, 0], [1, 1]])


def config_of(vector: Vector, algorithm: str = "random") -> dict[str, Any]:
    """The pair with these thresholds."""
    thresholds = (AUTO, AUTO) if isinstance(vector, str) else vector
    models = [
        {"name": name, "engine": "timed", "step_ms": ms, "threshold": threshold}
        for name, ms, threshold in zip(NAMES, STEP_MS, thresholds, strict=True)
    ]
    return {"served_name": NAME, "algorithm": algorithm, "router_threshold": P, "models": models}


def turn(
    vector: Vector, traffic: Traffic, seconds: float, nice: int, algorithm: str = "random"
) -> Turn:
    """Serve ``vector``, send the requests, and watch them for so long."""
    with served(config_of(vector, algorithm), nice) as server:
        before = [watch(server.url, 0.0, PERIOD_S)[0]]
        began = time.monotonic()
        with running(server.port, traffic.model, traffic.numbers, TOKENS, stream=False) as requests:
            readings = watch(server.url, began + seconds, PERIOD_S)
            requests.check()
    return Turn(vector, began, before + readings)


@dataclass(frozen=True)
class Effort:
    """``seconds`` that each turn is watched once it has settled; ``rounds`` of turns."""

    seconds: float
    rounds: int
    blocks: int
    nice: int

    def takes(self, turns: int) -> float:
        """Seconds, about, for so many turns a round."""
        return self.rounds * turns * (START_S + SETTLE_S + self.seconds)

    def turn(self, vector: Vector, traffic: Traffic) -> Turn:
        """One, of which is told how fast it was."""
        found = turn(vector, traffic, SETTLE_S + self.seconds, self.nice)
        rate = found.written(SETTLE_S) / self.seconds
        print(f"    {vector}: {rate:.1f} tokens/s", flush=True)
        return found

    def rounds_of(self, vectors: Sequence[Vector], traffic: Traffic) -> list[list[Turn]]:
        """Rounds in which every vector has its turn, in an order that rotates."""
        rounds = []
        for number in range(self.rounds):
            own = Traffic(traffic.concurrency, traffic.p, first=1000 * (number + 1))
            order = [*vectors[number % len(vectors) :], *vectors[: number % len(vectors)]]
            turns = {vector: self.turn(vector, own) for vector in order}
            rounds.append([turns[vector] for vector in vectors])
        return rounds


def predicted(system: System, concurrency: int) -> list[Thresholds]:
    """All feasible vectors, those that should be fastest first."""
    vectors = list(feasible(system, concurrency))
    predictions = simulate.predict(system, concurrency, vectors, events=EVENTS)
    ordered = sorted(predictions, key=lambda each: -each.tokens_per_s)
    return [each.thresholds for each in ordered]


def rivals(concurrency: int) -> list[Vector]:
    """Vectors other than (1, 1) that could be fastest: all of them, or the best and neighbours.

    The best are the `LEADERS` that should be fastest; a neighbour differs by one in one number.
    """
    ordered = predicted(system_of(), concurrency)
    if concurrency > EXHAUSTIVE:
        leaders = ordered[:LEADERS]
        ordered = [
            each
            for each in ordered
            if any(sum(abs(a - b) for a, b in zip(each, one, strict=True)) <= 1 for one in leaders)
        ]
    return [each for each in ordered if each != ONES]


def compare(turns: Sequence[tuple[Turn, Turn]], skip_s: float, blocks: int) -> tuple[Estimate, int]:
    """Throughput of the first of each pair over that of the second, and the blocks it is from."""
    size = min(each.written(skip_s) for pair in turns for each in pair) // blocks
    pairs = [(one.blocks(size, skip_s), other.blocks(size, skip_s)) for one, other in turns]
    return pooled_ratio(pairs), sum(common_blocks(*pair) for pair in pairs)
