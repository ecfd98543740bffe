"""What automatic thresholds are worth on the timed pair, and that they never harm.

    python benchmarks/auto_thresholds.py [--quick] [--parts gain harm settled shift] [--json FILE]

gain     p = 0.35, N = 2, 4, 8, 16: how much of what the best thresholds gain over (1, 1)
harm     N = 64, and p = 0.05 and 0.1 from N = 2 to 64: not slower than (1, 1)
settled  when the last change came after the first request, and changes in the minute after
shift    p from 0.35 to 0.117 while both models, or the large one, become three times slower

Everything is measured on whole servers, one after the other, with the same prompts and coins, and
compared block by block of equally many tokens (`intervals`). Status 1 if a claim does not hold.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from contest import (
    AUTO,
    NAMES,
    ONES,
    SETTLE_S,
    Effort,
    Traffic,
    Turn,
    candidates,
    compare,
    turn,
)  # fmt: skip
from intervals import lower_bound
from shift import AFTER_S, new_best, shifted
from validation import Verdict

FINALISTS = 3
CAPTURED, HARMLESS, SHIFTED = 0.8, 0.99, 0.97
SETTLED_S, MINUTE_S, CHANGES = 10.0, 60.0, 2
HARM = (
    (64, 0.35), (4, 0.05), (4, 0.1), (16, 0.05), (16, 0.1), (64, 0.1),
    (2, 0.05), (2, 0.1), (8, 0.05), (8, 0.1), (64, 0.05),
)  # fmt: skip
"""N and p, the most telling first."""


def gain(effort: Effort, concurrencies: Sequence[int]) -> list[Verdict]:
    """Of the fastest in one turn each, and of the automatic ones, over (1, 1)."""
    verdicts = []
    for concurrency in concurrencies:
        traffic = Traffic(concurrency)
        vectors = candidates(concurrency)
        print(f"  N = {concurrency}: one turn each for {len(vectors)} vectors", flush=True)
        first = sorted((effort.turn(vector, traffic) for vector in vectors), key=_speed)
        best = [each.vector for each in first if each.vector != ONES][-FINALISTS:]
        print(f"  N = {concurrency}: {effort.rounds} rounds of the best", flush=True)
        rounds = effort.rounds_of([AUTO, ONES, *best], traffic)
        ratios = [
            compare([(turns[i], turns[1]) for turns in rounds], SETTLE_S, effort.blocks)[0]
            for i in range(len(best) + 2)
        ]
        leader = max(range(1, len(ratios)), key=lambda i: ratios[i].value)
        verdicts.append(captured(concurrency, ratios[0].value, ratios[leader].value))
        print(f"  {verdicts[-1]}; the best is {[AUTO, ONES, *best][leader]}", flush=True)
    return verdicts


def captured(concurrency: int, auto: float, best: float) -> Verdict:
    """The share of the best vector's gain; both relative to (1, 1).

    Where nothing gains, the automatic ones must not lose.
    """
    if best <= 1.0:
        what = (
            f"N = {concurrency}: nothing to gain: {auto - 1.0:+.1%} (wanted: {HARMLESS} of (1, 1))"
        )
        return Verdict(what, auto >= HARMLESS)
    share = (auto - 1.0) / (best - 1.0)
    return Verdict(
        f"N = {concurrency}: {share:.0%} of the gain: {auto - 1.0:+.1%} of {best - 1.0:+.1%} "
        f"(wanted: {CAPTURED:.0%})",
        share >= CAPTURED,
    )


def harm(effort: Effort, settings: Sequence[tuple[int, float]]) -> list[Verdict]:
    """Automatic thresholds over (1, 1) where there is little to gain."""
    verdicts = []
    for concurrency, p in settings:
        print(f"  N = {concurrency}, p = {p}", flush=True)
        rounds = effort.rounds_of([AUTO, ONES], Traffic(concurrency, p))
        pairs = [(auto, ones) for auto, ones in rounds]
        ratio, blocks = compare(pairs, SETTLE_S, effort.blocks)
        bound = lower_bound(ratio, blocks)
        what = f"N = {concurrency}, p = {p}: {ratio} of (1, 1), at least {bound:.4f}"
        verdicts.append(Verdict(f"{what} (wanted: {HARMLESS})", bound >= HARMLESS))
        print(f"  {verdicts[-1]}", flush=True)
    return verdicts


def settled(effort: Effort, concurrencies: Sequence[int], minute_s: float) -> list[Verdict]:
    """How soon automatic thresholds rest, and how often they change afterwards."""
    verdicts = []
    for concurrency in concurrencies:
        found = turn(AUTO, Traffic(concurrency), SETTLED_S + minute_s, effort.nice)
        verdicts += rest(found, minute_s)
        print(*verdicts[-2:], sep="\n", flush=True)
    return verdicts


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


def shift(effort: Effort, concurrency: int, slowed: Sequence[str]) -> list[Verdict]:
    """Throughput from `AFTER_S` after the shift on, over that of the best fixed thresholds."""
    vectors = new_best(concurrency, slowed, FINALISTS)
    print(f"  {' and '.join(slowed)} slower; best predicted then: {vectors}", flush=True)
    seconds = AFTER_S + effort.seconds
    rounds = []
    for number in range(effort.rounds):
        traffic = Traffic(concurrency, first=1000 * number)
        each_of = (AUTO, *vectors)
        rounds.append([shifted(each, traffic, slowed, seconds, effort.nice) for each in each_of])
    written = [sum(turns[i].written(AFTER_S) for turns in rounds) for i in range(len(vectors) + 1)]
    best = max(range(1, len(written)), key=lambda i: written[i])
    ratio, _ = compare([(turns[0], turns[best]) for turns in rounds], AFTER_S, effort.blocks)
    last = rounds[-1][0].readings[-1].thresholds
    what = f"N = {concurrency}: {ratio} of the new best, {vectors[best - 1]}, with {last}"
    verdict = Verdict(f"{what} (wanted: {SHIFTED})", ratio.value >= SHIFTED)
    print(f"  {verdict}", flush=True)
    return [verdict]


def _speed(found: Turn) -> int:
    return found.written(SETTLE_S)


def main() -> None:
    """Print what each part found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ("gain", "harm", "settled", "shift")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--quick", action="store_true", help="fewer settings, minutes; noisy")
    parser.add_argument("--concurrency", type=int, nargs="+", help="of gain and settled")
    parser.add_argument("--seconds", type=float, help="of a turn: 40 (quick: 12)")
    parser.add_argument("--rounds", type=int, help="3 (quick: 1)")
    parser.add_argument("--nice", type=int, default=0, help="of the server; negative: as root")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    # So that a run that is told to stop takes its servers with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    quick = arguments.quick
    effort = Effort(
        seconds=arguments.seconds or (12.0 if quick else 40.0),
        rounds=arguments.rounds or (1 if quick else 3),
        blocks=12 if quick else 24,
        nice=arguments.nice,
    )
    sizes = arguments.concurrency or ([2] if quick else [2, 4, 8, 16])
    run: dict[str, Callable[[], list[Verdict]]] = {
        "gain": lambda: gain(effort, sizes),
        "harm": lambda: harm(effort, HARM[:2] if quick else HARM),
        "settled": lambda: settled(effort, sizes, 20.0 if quick else MINUTE_S),
        "shift": lambda: [
            verdict
            for slowed in ((NAMES,) if quick else (NAMES, NAMES[1:]))
            for verdict in shift(effort, 4, slowed)
        ],
    }
    verdicts = []
    for part in arguments.parts:
        print(part, flush=True)
        verdicts += run[part]()
    print(*verdicts, sep="\n")
    if arguments.json:
        written: list[dict[str, Any]] = [
            {"what": each.what, "passed": each.passed} for each in verdicts
        ]
        arguments.json.write_text(json.dumps(written, indent=1))
    sys.exit(not all(each.passed for each in verdicts))


if __name__ == "__main__":
    main()
