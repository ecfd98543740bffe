"""What automatic thresholds are worth on the timed pair, and that they never harm.

    python benchmarks/auto_thresholds.py [--parts gain harm settled shift] [--minutes 40]
        [--seconds 12] [--rounds 1] [--json FILE]

gain     p = 0.35, N = 4, 2, 8, 16: how much of what the best thresholds gain over (1, 1)
harm     N = 64, and p = 0.05 and 0.1 from N = 2 to 64: not slower than (1, 1)
settled  when the last change came after the first request, and changes in the minute after
shift    p from 0.35 to 0.117 while both models, or the large one, become three times slower,
         or while the same requests go on

Everything is measured on whole servers, one after the other, with the same prompts and coins,
and compared block by block of equally many tokens (`intervals`). The first setting of every part
comes first, then the second ones, until the minutes are over; more `--seconds` and `--rounds`
make errors smaller. Status 1 if a claim does not hold or had no time.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from functools import partial
from pathlib import Path

import budget
from budget import Cell
from contest import (
    AUTO,
    NAMES,
    ONES,
    SETTLE_S,
    START_S,
    Effort,
    Traffic,
    Turn,
    compare,
    rivals,
    turn,
)
from intervals import Estimate, lower_bound
from shift import drift, drift_takes, shift, shift_takes
from validation import Verdict

CAPTURED, HARMLESS = 0.8, 0.99
SETTLED_S, MINUTE_S, CHANGES = 10.0, 60.0, 2
GAIN = (4, 2, 8, 16)
"""N, the most telling first."""
HARM = (
    (64, 0.35), (4, 0.05), (4, 0.1), (16, 0.05), (16, 0.1), (64, 0.1),
    (2, 0.05), (2, 0.1), (8, 0.05), (8, 0.1), (64, 0.05),
)  # fmt: skip
"""N and p, likewise."""
SETTLED = (4, 16)
SHIFTED = 4
BLOCKS = 24


def gain(effort: Effort, concurrency: int) -> list[Verdict]:
    """Of the vectors predicted to be fastest, and of the automatic ones, over (1, 1)."""
    vectors = [AUTO, ONES, *rivals(concurrency)]
    rounds = effort.rounds_of(vectors, Traffic(concurrency))
    ratios = [
        compare([(turns[i], turns[1]) for turns in rounds], SETTLE_S, effort.blocks)[0]
        for i in range(len(vectors))
    ]
    leader = max(range(1, len(ratios)), key=lambda i: ratios[i].value)
    return [captured(ratios[0], ratios[leader], vectors[leader])]


def captured(auto: Estimate, best: Estimate, vector: object) -> Verdict:
    """The share of the best vector's gain; both relative to (1, 1).

    Where nothing gains, the automatic ones must not lose.
    """
    if best.value <= 1.0:
        what = f"nothing to gain: {auto} of (1, 1) (wanted: {HARMLESS})"
        return Verdict(what, auto.value >= HARMLESS)
    share = (auto.value - 1.0) / (best.value - 1.0)
    return Verdict(
        f"{share:.0%} of the gain (wanted: {CAPTURED:.0%}): {auto} of (1, 1), {vector}: {best}",
        share >= CAPTURED,
    )


def harm(effort: Effort, concurrency: int, p: float) -> list[Verdict]:
    """Automatic thresholds over (1, 1) where there is little to gain."""
    rounds = effort.rounds_of([AUTO, ONES], Traffic(concurrency, p))
    ratio, blocks = compare([(auto, ones) for auto, ones in rounds], SETTLE_S, effort.blocks)
    bound = lower_bound(ratio, blocks)
    what = f"{ratio} of (1, 1), at least {bound:.4f} (wanted: {HARMLESS})"
    return [Verdict(what, bound >= HARMLESS)]


def settled(effort: Effort, concurrency: int) -> list[Verdict]:
    """How soon automatic thresholds rest, and how often they change afterwards."""
    found = turn(AUTO, Traffic(concurrency), SETTLED_S + MINUTE_S, effort.nice)
    return rest(found, MINUTE_S)


def rest(found: Turn, minute_s: float) -> list[Verdict]:
    """Of a stationary turn: when its thresholds of the tenth second came, and later changes."""
    readings = [each for each in found.readings if each.at >= found.began]
    early = [each for each in readings if each.at < found.began + SETTLED_S]
    late = [each for each in readings if each.at >= found.began + SETTLED_S]
    came = next(each.at for each in early if each.thresholds == early[-1].thresholds)
    changes = late[-1].changes - early[-1].changes
    final = late[-1].thresholds
    return [
        Verdict(
            f"thresholds {early[-1].thresholds} after {came - found.began:.1f} s; "
            f"{final} at the end",
            final == early[-1].thresholds,
        ),
        Verdict(f"{changes} changes in {minute_s:.0f} s after that", changes <= CHANGES),
    ]


def cells_of(effort: Effort) -> dict[str, list[Cell]]:
    """Every part's settings, the most valuable first."""
    minute = START_S + SETTLED_S + MINUTE_S
    shifts = [
        (f"{' and '.join(slowed)} slower", shift_takes(effort), partial(shift, slowed=slowed))
        for slowed in (NAMES, NAMES[1:])
    ]
    shifts.insert(1, ("same requests", drift_takes(effort), drift))
    return {
        "gain": [
            Cell("gain", f"N = {n}", effort.takes(len(rivals(n)) + 2), partial(gain, effort, n))
            for n in GAIN
        ],
        "harm": [
            Cell("harm", f"N = {n}, p = {p}", effort.takes(2), partial(harm, effort, n, p))
            for n, p in HARM
        ],
        "settled": [
            Cell("settled", f"N = {n}", minute, partial(settled, effort, n)) for n in SETTLED
        ],
        "shift": [
            Cell("shift", f"N = {SHIFTED}, {what}", takes, partial(run, effort, SHIFTED))
            for what, takes, run in shifts
        ],
    }


def main() -> None:
    """Print what each part found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ("gain", "harm", "settled", "shift")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--minutes", type=float, default=40.0, help="for all parts together")
    parser.add_argument("--seconds", type=float, default=12.0, help="of a turn, once settled")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--nice", type=int, default=0, help="of the server; negative: as root")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    # So that a run that is told to stop takes its servers with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    effort = Effort(arguments.seconds, arguments.rounds, BLOCKS, arguments.nice)
    every = cells_of(effort)
    outcomes = []
    cells = budget.in_turns([every[part] for part in arguments.parts])
    for outcome in budget.run(cells, 60 * arguments.minutes):
        outcomes.append(outcome)
        if arguments.json:
            arguments.json.write_text(json.dumps(budget.record(outcomes), indent=1))
    print(budget.summary(outcomes))
    sys.exit(not all(each.passed for each in outcomes))


if __name__ == "__main__":
    main()
