"""Predicted against measured throughput of a routed pair, as in the paper, on the real stack.

    python benchmarks/validate_throughput_model.py --engine timed [--quick] [--plot FILE]
    python benchmarks/validate_throughput_model.py --engine sglang [--quick]

`random` with p = 0.35 between two models; the small one's threshold is 1; N = 2, 3, 4 requests
that never end; every threshold of the large model, each a server of its own with the same
prompts and coins. ``timed``: steps of 6.0 and 27.9 ms. ``sglang``: the demo's small model and one
of 150 million random weights, a core each. Status 1 if a criterion is not met. Standard errors
are those of batch means over blocks of equally many tokens: with ``--seconds 110`` of the timed
pair 0.5 to 1.1 % of a cell's throughput, and half as much in four times the time.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from intervals import cut
from validation import Cell, Verdict, best_threshold, record, table, within
from validation_plot import plot
from validation_runs import NAMES, NOMINAL_MS, Deployment, P, Run, deployment_of, minutes, run

from tokenrouter.ipc.member_state import Measurements
from tokenrouter.throughput_model import estimate
from tokenrouter.throughput_model.chain import exact
from tokenrouter.throughput_model.count_simulation import simulate
from tokenrouter.throughput_model.event_simulation import decisions, events
from tokenrouter.throughput_model.parameters import Latency, Model, System

TICK_MS = 0.1
BLOCKS = 24
"""Into which a run is cut."""
EVENTS = 1_000_000
"""Of a simulated prediction: its own error is far below what is measured."""


def cells(deployment: Deployment, runs: Sequence[Run], nominal: System | None) -> Iterator[Cell]:
    """The runs of one concurrency, cut into blocks of one size, with their predictions."""
    size = min(each.tokens for each in runs) // BLOCKS
    together = [estimate.total(each) for each in zip(*(each.windows for each in runs), strict=True)]
    for each in runs:
        # The cost of a token is told by all runs; that of a step of the timed engine by its own.
        measured = system(latencies(each.windows if nominal else together, each.concurrency))
        times = [reading.at for reading in each.readings]
        blocks = cut(times, [reading.tokens for reading in each.readings], size)
        vector = (1, each.threshold)
        predicted = {}
        if nominal:
            predicted["nominal"] = exact.predict(nominal, each.concurrency, vector).tokens_per_s
        [simulated] = simulate.predict(measured, each.concurrency, [vector], events=EVENTS)
        predicted["measured"] = simulated.tokens_per_s
        predicted["replay"] = replay(each, measured, deployment.hop_ms)
        steps = tuple(_mean_ms(member) for member in each.windows)
        yield Cell(each.concurrency, each.threshold, blocks, steps, predicted)


def latencies(windows: Sequence[Measurements], concurrency: int) -> list[Latency]:
    """The law of each model."""
    pairs = zip(NAMES, windows, strict=True)
    return [estimate.latency(name, measured, concurrency) for name, measured in pairs]


def _mean_ms(measured: Measurements) -> float:
    steps = measured.steps.values()
    return 1e3 * sum(each.seconds for each in steps) / sum(each.count for each in steps)


def replay(run: Run, measured: System, hop_ms: float) -> float:
    """Tokens per second of the recorded decisions at the measured latencies."""
    first, last = run.readings[0], run.readings[-1]
    trace = events.simulate(
        measured,
        (1, run.threshold),
        decisions.load(run.folder),
        duration_ms=1e3 * (last.at - first.at),
        warm_up_ms=1e3 * (first.at - run.began),
        hop_ms=hop_ms,
    )
    return trace.tokens_per_s


def system(latencies: Sequence[Latency], tick_ms: float | None = None) -> System:
    """`random` with p = 0.35: a small step commits unless the large model is asked instead."""
    models = tuple(Model(*each) for each in zip(NAMES, latencies, strict=True))
    return System(models, [[1 - P, P], [1, 0]], [[1, 0], [1, 1]], tick_ms)


def reference(engine: str) -> str:
    """The prediction that says which threshold is best: no weights have a nominal latency."""
    return "nominal" if engine == "timed" else "measured"


def criteria(found: Sequence[Cell], engine: str) -> list[Verdict]:
    """What the project claims of this engine."""
    timed = engine == "timed"
    limits = {"nominal": 0.05, "measured": 0.03, "replay": 0.015} if timed else {"measured": 0.1}
    verdicts = [within(found, kind, limit) for kind, limit in limits.items()]
    sizes = sorted({cell.concurrency for cell in found})
    verdicts += [best_threshold(found, reference(engine), size, noise=not timed) for size in sizes]
    return verdicts


def main() -> None:
    """Print every cell, and what was to be shown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("timed", "sglang"), required=True)
    parser.add_argument("--quick", action="store_true", help="some minutes in all; noisy")
    parser.add_argument("--seconds", type=float, help="a cell; timed: 180, sglang: 90 (quick: 15)")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--nice", type=int, default=0, help="of the server; negative: as root")
    parser.add_argument("--plot", type=Path, metavar="PNG")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    # So that a run that is told to stop takes its servers with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    usual = 180.0 if arguments.engine == "timed" else 90.0
    seconds = arguments.seconds or (15.0 if arguments.quick else usual)
    nominal = None
    if arguments.engine == "timed":
        nominal = system([Latency(ms) for ms in NOMINAL_MS], TICK_MS)
    found: list[Cell] = []
    with deployment_of(arguments.engine, seconds, arguments.nice) as deployment:
        for index, concurrency in enumerate(arguments.concurrency):
            left = minutes(deployment, arguments.concurrency[index:])
            print(f"N = {concurrency}: {concurrency} cells; about {left:.0f} min to go", flush=True)
            with tempfile.TemporaryDirectory() as scratch:
                runs = [
                    run(deployment, concurrency, threshold, Path(scratch) / str(threshold))
                    for threshold in range(1, concurrency + 1)
                ]
                found += cells(deployment, runs, nominal)
            print(table(found[-concurrency:]), flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(record(found, []), indent=1))
    verdicts = criteria(found, arguments.engine)
    print("all cells", table(found), *verdicts, sep="\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(record(found, verdicts), indent=1))
    if arguments.plot:
        plot(found, reference(arguments.engine), arguments.plot)
    sys.exit(not all(verdict.passed for verdict in verdicts))


if __name__ == "__main__":
    main()
