"""How exact routed answers of the demo pair are, over the share that the large model writes.

    python benchmarks/routing_quality.py --minutes 40 --json FILE --plot docs/routing_quality.png

Greedy answers to problems that no model and no router was trained on, through the offline
engine (`tokenrouter.Engine`), all asked at once; thresholds are chosen on other problems. What
claims are about is measured first, on all problems; the rest on fewer (`--others`). Results are
kept in `--cache`, so that a run that is started again goes on where it was; delete the folder
after a change of algorithms (a change of weights makes a new one).

Passes of a request: the sum of the sizes of a member's batches (`state.batches` in
`/get_server_info`), before and after. A pass reads one token or more of one request: a step
that checks eight drafts is one, and so is a prompt.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quality_bounds import token_oracle
from quality_claims import Claims, Curves, with_bounds
from quality_methods import CLAIMS, CURVES, OTHERS, Job
from quality_points import Point, to_json
from quality_report import plot, table
from quality_runs import Lab, OutOfTime
from quality_tuning import tune
from rich.console import Console
from rich.progress import Progress
from validation import Verdict

from tokenrouter.demo.splits import for_judging
from tokenrouter.errors import TokenRouterError

CACHE = Path("build/routing_quality")
console = Console()


@dataclass(frozen=True)
class Sizes:
    """Problems: to judge claims on, to judge other methods on, and to choose thresholds on.

    Thresholds of other methods are chosen on half as many.
    """

    claimed: int
    others: int
    thresholds: int


@dataclass
class Found:
    """What was measured so far.

    Attributes:
        curves: points by method, on the problems for judging.
        delays: of streaming, by method and threshold.
        shares: by method and threshold, on the problems for choosing thresholds.
        missing: methods that cannot be measured, and why.
    """

    curves: dict[str, list[Point]] = field(default_factory=dict)
    delays: dict[tuple[str, float | None], dict[str, float]] = field(default_factory=dict)
    shares: dict[str, dict[float, float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, point: Point) -> None:
        """One point, unless it is there already."""
        points = self.curves.setdefault(point.method, [])
        if all(each.threshold != point.threshold for each in points):
            points.append(point)


def thresholds(
    lab: Lab, job: Job, count: int, known: dict[float, float]
) -> dict[float | None, float | None]:
    """By target share; of a method without a scale: its own.

    Args:
        known: shares by threshold on the problems for this; what is measured is added.
    """
    if job.method.scale is None:
        return {None: None}

    def share(threshold: float) -> float:
        return lab.measure(job.method, threshold, "thresholds", count).share

    return dict(tune(share, job.targets, job.method.scale, known))


def measured(lab: Lab, job: Job, sizes: Sizes, found: Found) -> Iterator[Point]:
    """Every point of a job, and how its answers stream."""
    count = sizes.claimed if job.claimed else sizes.others
    tuning = sizes.thresholds if job.claimed else sizes.thresholds // 2
    known = found.shares.setdefault(job.method.name, {})
    chosen = thresholds(lab, job, tuning, known)
    for target in set(job.targets) - chosen.keys():
        found.missing[f"{job.method.name} at {target:.0%}"] = "no threshold has this share"
    for target, threshold in chosen.items():
        yield lab.measure(job.method, threshold, "judging", count, target)
        found.delays[job.method.name, threshold] = dict(lab.streaming(job.method, threshold))


def measure(lab: Lab, jobs: Sequence[Job], sizes: Sizes) -> Found:
    """Everything that fits the time, in order."""
    found = Found()
    with Progress(*Progress.get_default_columns(), console=console) as progress:
        task = progress.add_task("", total=sum(max(len(job.targets), 1) for job in jobs))
        for job in jobs:
            progress.update(task, description=job.method.name)
            if job.method.name not in found.missing:
                try:
                    for point in measured(lab, job, sizes, found):
                        found.add(point)
                        console.print(told(point), soft_wrap=True)
                        progress.advance(task)
                except TokenRouterError as error:
                    found.missing[job.method.name] = str(error)
                    console.print(f"{job.method.name}: {error}", markup=False, soft_wrap=True)
                except OutOfTime:
                    console.print(f"{job.method.name}: no time")
    return found


def told(point: Point) -> str:
    """One line."""
    at = "" if point.threshold is None else f" @ {point.threshold:g}"
    return (
        f"{point.method}{at}: {point.accuracy:.4f} exact at {point.share:.2%} large tokens, "
        f"{point.passes_per_token('large'):.3f} large passes a token, {point.seconds:.0f} s"
    )


def report(found: Found, sizes: Sizes, arguments: argparse.Namespace) -> bool:
    """Print and write everything; whether all claims hold."""
    oracle = token_oracle(for_judging(sizes.claimed))
    curves = with_bounds(found.curves, oracle)
    verdicts = Claims(curves, sizes.claimed).verdicts()
    print(table(curves, found.delays))
    print(*verdicts, sep="\n")
    print(*(f"not measured: {name}: {why}" for name, why in found.missing.items()), sep="\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(record(curves, found, verdicts), indent=1))
    if arguments.plot:
        plot(curves, arguments.plot)
    return all(each.passed for each in verdicts)


def record(curves: Curves, found: Found, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """For a file: every point with its problems, so that other intervals can be had of it."""
    return {
        "claims": [{"what": each.what, "passed": each.passed} for each in verdicts],
        "points": [
            {
                "accuracy": point.accuracy,
                "share": point.share,
                "streaming": found.delays.get((point.method, point.threshold)),
                **to_json(point),
            }
            for points in curves.values()
            for point in points
        ],
        "missing": found.missing,
    }


def main() -> None:
    """Measure what fits, then tell it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=40.0, help="for all measurements")
    parser.add_argument("--quick", action="store_true", help="few problems: 100, 50 and 50")
    parser.add_argument("--problems", type=int, default=2000, help="that claims are judged on")
    parser.add_argument("--others", type=int, default=400, help="for what no claim is about")
    parser.add_argument("--tuning", type=int, default=400, help="problems to choose thresholds on")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the engine too
    sizes = Sizes(arguments.problems, arguments.others, arguments.tuning)
    if arguments.quick:
        sizes = Sizes(100, 50, 50)
    deadline = time.monotonic() + 60 * arguments.minutes
    with Lab(arguments.cache, deadline) as lab:
        found = measure(lab, [*CLAIMS, *OTHERS, *CURVES], sizes)
    sys.exit(not report(found, sizes, arguments))


if __name__ == "__main__":
    main()
