"""Stretches of time, of what members count since they started: differences and sums.

Used by `estimate.py`, which makes a system of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tokenrouter.ipc.member_state import Measurements, StepSums

NO_STEPS = StepSums(0, 0.0, 0.0, 0, 0, 0.0)


def window(before: Measurements | None, after: Measurements) -> Measurements:
    """What one member measured between two looks; ``at`` becomes the seconds between them.

    Args:
        before: None: since it started, and ``at`` stays the member's clock.
    """
    if before is None:
        return after
    return Measurements(
        at=after.at - before.at,
        steps=_added([after.steps, before.steps], [1, -1]),
        prefill=_sum([after.prefill, before.prefill], [1, -1]),
        profile=after.profile,
        hops=_added_hops([after.hops, before.hops], [1, -1]),
        runs=_added_runs([after.runs, before.runs], [1, -1]),
        live_seconds=after.live_seconds - before.live_seconds,
    )


def total(windows: Sequence[Measurements]) -> Measurements:
    """What one member measured in several stretches of time; the profile is the first's."""
    signs = [1] * len(windows)
    return Measurements(
        at=sum(each.at for each in windows),
        steps=_added([each.steps for each in windows], signs),
        prefill=_sum([each.prefill for each in windows], signs),
        profile=windows[0].profile,
        hops=_added_hops([each.hops for each in windows], signs),
        runs=_added_runs([each.runs for each in windows], signs),
        live_seconds=sum(each.live_seconds for each in windows),
    )


def _sum(sums: Sequence[StepSums], signs: Sequence[int]) -> StepSums:
    columns = zip(*map(msgspec.structs.astuple, sums), strict=True)
    return StepSums(*(sum(s * x for s, x in zip(signs, each, strict=True)) for each in columns))


def _added(steps: Sequence[Mapping[int, StepSums]], signs: Sequence[int]) -> dict[int, StepSums]:
    sizes = sorted({size for each in steps for size in each})
    added = {s: _sum([each.get(s, NO_STEPS) for each in steps], signs) for s in sizes}
    return {size: sums for size, sums in added.items() if sums.count}


def _added_hops(
    hops: Sequence[Mapping[int, tuple[int, int]]], signs: Sequence[int]
) -> dict[int, tuple[int, int]]:
    added = {}
    for to in sorted({to for each in hops for to in each}):
        pairs = [each.get(to, (0, 0)) for each in hops]
        count, kept = (
            sum(sign * pair[column] for sign, pair in zip(signs, pairs, strict=True))
            for column in (0, 1)
        )
        if count:
            added[to] = (count, kept)
    return added


def _added_runs(runs: Sequence[Mapping[int, int]], signs: Sequence[int]) -> dict[int, int]:
    lengths = sorted({length for each in runs for length in each})
    added = {
        length: sum(sign * each.get(length, 0) for sign, each in zip(signs, runs, strict=True))
        for length in lengths
    }
    return {length: count for length, count in added.items() if count}
