"""What a member's loop costs beside its engine, and how long a hand-over travels.

    python benchmarks/loop_cost.py [--batches 1 4 16 64 256] [--json FILE] [--profile 16]

Runs the real loop over the real links, with an engine that costs nothing, and gives the CPU
time (of the loop's thread, so that a busy machine disturbs little) of each of its parts:
receive, launch, the work around the engine's step (signals, streaming), complete.
``alone``: one member writes everything. ``p = 0``: a routed deployment in which nothing moves.
``routed``: every third token goes through the other member, and all requests have come back
before the next step. Then: how long frames take to an idle peer; and where the time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from loop_parts import Load, deployment

from tokenrouter.subserver.loop import Subserver

PARTS = ("receive", "launch", "around step", "complete")
LOADS = {"alone": ("single", None), "p = 0": ("random", 0.0), "routed": ("random", 1 / 3)}
BUDGET_MS = 0.5
DELAY_MS = 0.2


def step_once(subserver: Subserver) -> list[float]:
    """CPU seconds of each part, up to the end of one step, fruitless iterations included."""
    clock = time.thread_time
    receive = launch = 0.0
    while True:
        start = clock()
        subserver.receive()
        received = clock()
        work = subserver.launch()
        launched = clock()
        receive += received - start
        launch += launched - received
        if work:
            break
    batch = subserver.step(work)
    stepped = clock()
    subserver.complete(work, batch)
    return [receive, launch, stepped - launched, clock() - stepped]


def measure(kind: str, batch: int, steps: int) -> dict[str, Any]:
    """Median CPU milliseconds of each part of an iteration at ``batch`` requests."""
    with deployment(load_of(kind, batch)) as (subserver, _):
        for _ in range(max(20, steps // 10)):
            step_once(subserver)
        before = subserver.stats.batches[batch]
        rows = [step_once(subserver) for _ in range(steps)]
        if subserver.stats.batches[batch] - before != steps:
            sys.exit(f"{kind}: not every step had {batch} requests: {subserver.stats.batches}")
    parts = {
        part: 1e3 * statistics.median(column)
        for part, column in zip(PARTS, zip(*rows, strict=True), strict=True)
    }
    total = 1e3 * statistics.median(map(sum, rows))
    return {"kind": kind, "batch": batch, "parts_ms": parts, "total_ms": total}


def load_of(kind: str, batch: int) -> Load:
    algorithm, threshold = LOADS[kind]
    return Load(algorithm, batch, threshold)


def hand_over_delays(count: int) -> list[float]:
    """Milliseconds that frames take to a peer that waits, one request going to and fro."""
    with deployment(Load("random", 1, 1.0, step_s=0.005)) as (subserver, end):
        for _ in range(count):
            step_once(subserver)
        return sorted(1e3 * delay for delay in end())


def profile(kind: str, batch: int, steps: int, lines: int) -> None:
    """Print which functions take the time of an iteration, cProfile's own cost included."""
    with deployment(load_of(kind, batch)) as (subserver, _):
        for _ in range(20):
            step_once(subserver)
        profiler = cProfile.Profile(time.thread_time)
        profiler.enable()
        for _ in range(steps):
            step_once(subserver)
        profiler.disable()
    stats: Any = pstats.Stats(profiler)
    rows = [(own, calls, name) for name, (_, calls, own, _, _) in stats.stats.items()]
    total = sum(own for own, _, _ in rows)
    print(f"\n{kind}, batch {batch}: own time by function")
    for own, calls, (file, _, function) in sorted(rows, reverse=True)[:lines]:
        where = f"{Path(file).name}:{function}" if file != "~" else function
        print(f"  {own / total:5.1%} {1e6 * own / steps:7.1f} us {calls / steps:7.1f} x  {where}")


def main() -> None:
    """Print one line per load and batch, the delays, and a profile."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--kinds", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--hand-overs", type=int, default=500)
    parser.add_argument("--profile", type=int, nargs="*", default=[16], metavar="BATCH")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    rows = []
    for kind in arguments.kinds:
        for batch in arguments.batches:
            row = measure(kind, batch, arguments.steps)
            rows.append(row)
            parts = ", ".join(f"{part} {ms:.3f}" for part, ms in row["parts_ms"].items())
            print(
                f"{kind}, batch {batch}: {row['total_ms']:.3f} CPU ms an iteration ({parts}), "
                f"{1e3 * row['total_ms'] / batch:.1f} us a request",
                flush=True,
            )
    result: dict[str, Any] = {"budget_ms": BUDGET_MS, "iterations": rows}
    if arguments.hand_overs:
        delays = hand_over_delays(arguments.hand_overs)
        at = {p: delays[min(len(delays) * p // 100, len(delays) - 1)] for p in (50, 90, 99)}
        print(
            f"hand-over to an idle peer, {len(delays)} frames, ms: "
            + ", ".join(f"p{p} {ms:.3f}" for p, ms in at.items())
            + f" (at most {DELAY_MS} wanted at p50)",
            flush=True,
        )
        result["delay_ms"] = at
    for batch in arguments.profile:
        for kind in arguments.kinds:
            profile(kind, batch, arguments.steps, lines=14)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
