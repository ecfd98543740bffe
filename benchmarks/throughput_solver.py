"""What it costs to solve the throughput model, in CPU seconds of one core.

    python benchmarks/throughput_solver.py [--json FILE]

Machine code is compiled before anything is timed. ``limit`` is what a time must stay under.
Searches are compared with a long random search (M = 2: all vectors), judged on other tapes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy

from tokenrouter.throughput_model.chain import exact
from tokenrouter.throughput_model.count_simulation import simulate, tapes
from tokenrouter.throughput_model.count_simulation.beginnings import scattered
from tokenrouter.throughput_model.parameters import Latency, Model, System
from tokenrouter.throughput_model.search import search
from tokenrouter.throughput_model.search.space import space
from tokenrouter.throughput_model.systems import r2r

PAPER = r2r((Model("small", Latency(6.0)), Model("large", Latency(27.9))), 0.35, 0.1)


@dataclass(frozen=True)
class Timing:
    what: str
    cpu_s: float
    limit_s: float | None
    note: str


def timed(what: str, work: Callable[[], str], limit_s: float | None = None) -> Timing:
    """``work`` returns what there is to say about its result."""
    start = time.process_time()
    note = work()
    return Timing(what, time.process_time() - start, limit_s, note)


def solve(system: System, concurrency: int, vectors: list[tuple[int, ...]], cap: int) -> str:
    found = [exact.predict(system, concurrency, each, cap) for each in vectors]
    best = max(found, key=lambda each: each.tokens_per_s)
    states = max(each.states for each in found)
    return f"best {best.thresholds} {best.tokens_per_s:.2f} tokens/s, at most {states} states"


def chains() -> Iterator[Timing]:
    """The exact chain at M = 2, 6.0 / 27.9 ms, p = 0.35."""
    every = list(search.feasible(PAPER, 16))
    sweep = [(1, theta) for theta in range(1, 17)]
    yield timed("N=16, theta_1 sweep", lambda: solve(PAPER, 16, sweep, exact.MAX_STATES), 2.0)
    what = f"N=16, all {len(every)} vectors"
    yield timed(what, lambda: solve(PAPER, 16, every, exact.MAX_STATES), 6.0)
    for size in (32, 64):
        yield timed(f"N={size}, (1, 1)", lambda n=size: solve(PAPER, n, [(1, 1)], 400_000))
    yield timed("N=256, (1, 140)", lambda: solve(PAPER, 256, [(1, 140)], 400_000))


def four_models() -> System:
    """Their thresholds bring 20 %."""
    chance = numpy.random.default_rng(0)
    times = (12.0, 35.0, 50.0, 8.0)
    models = tuple(Model(f"m{index}", Latency(each)) for index, each in enumerate(times))
    routing = chance.dirichlet(numpy.full(4, 0.5), size=4) * 0.96 + 0.01
    return System(models, routing, numpy.ones((4, 4)))


def searches() -> Iterator[Timing]:
    """The best vector of a crowd, and whole tables."""
    for name, system, limit in (("M=2", PAPER, 3.0), ("M=4", four_models(), 15.0)):
        found: list[search.Found] = []

        def look(system: System = system, found: list[search.Found] = found) -> str:
            found.append(search.best(system, 256))
            best = found[-1].best
            return f"best {best.thresholds} {best.tokens_per_s:.1f} tokens/s"

        timing = timed(f"{name}, N=256, best", look, limit)
        lost = 100 * regret(system, 256, found[0].best.thresholds)
        yield Timing(timing.what, timing.cpu_s, limit, f"{timing.note}, regret {lost:.2f} %")
    for name, system in (("M=2", PAPER), ("M=4", four_models())):
        limit = 2.0 if name == "M=2" else None
        yield timed(
            f"{name}, table of 64",
            lambda system=system: f"now 16: {search.table(system, 64, at=16)[15]}",
            limit,
        )


def regret(system: System, requests: int, chosen: tuple[int, ...], most: int = 40_000) -> float:
    """The share of throughput that a far longer search would have found on top."""
    vectors = space(system, requests)
    everything = vectors.some(most)
    if everything is None:
        everything = list(set(vectors.random(most, numpy.random.default_rng(7))))
    crowd = simulate.Simulation(system, requests, tapes.tapes_for(system, requests, 100_000, 1234))
    even = scattered(crowd)[0]
    rates = crowd.run(everything, 3000, even).tokens_per_s
    best = [everything[index] for index in numpy.argsort(-rates)[:50]]
    judged = crowd.run([chosen, *best], 100_000, even).tokens_per_s
    return float(1 - judged[0] / judged.max())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the times to this file")
    arguments = parser.parse_args()
    solve(PAPER, 2, [(1, 1)], 100)
    search.best(PAPER, 20)
    timings = []
    for each in itertools.chain(chains(), searches()):
        limit = "" if each.limit_s is None else f"(limit {each.limit_s:g} s)"
        print(f"{each.what:28} {each.cpu_s:7.3f} s {limit:14} {each.note}", flush=True)
        timings.append(each)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(each) for each in timings], indent=1) + "\n")
    late = [each.what for each in timings if each.limit_s and each.cpu_s > each.limit_s]
    print("over their limit: " + ", ".join(late) if late else "all within their limits")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
