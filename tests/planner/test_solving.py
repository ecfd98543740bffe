"""The table that follows from measurements, by the model or by replay."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from tokenrouter.ipc.member_state import Measurements, StepSums
from tokenrouter.ipc.operations import LONGEST_TABLE
from tokenrouter.planner.problem import Problem, Solution, Terms
from tokenrouter.planner.solving import fitted, solve
from tokenrouter.subserver.tables import fault_of, fixed_table, row
from tokenrouter.throughput_model.estimate import NO_STEPS, system
from tokenrouter.throughput_model.event_simulation import decisions, events

STEPS = 10_000
NAMES = ("small", "large", "huge")


def measured(
    ms: float, hops: Mapping[int, float], kept: int, runs: Mapping[int, int] | None = None
) -> Measurements:
    """Steps of 1 to 64 visits that take ``ms``; ``hops``: shares of where they lead.

    Those that lead to ``kept`` commit their token.
    """
    s = ms / 1e3
    steps = {b: StepSums(99, 99 * s, 99 * s * s, 99 * b, 99 * b * b, 99 * b * s)
             for b in range(1, 65)}  # fmt: skip
    counts = {to: round(STEPS * share) for to, share in hops.items()}
    pairs = {to: (count, count * (to == kept)) for to, count in counts.items() if count}
    return Measurements(5.0, steps, NO_STEPS, {}, pairs, dict(runs or {}), 0.0)


def pair(p: float, runs: Mapping[int, int] | None = None) -> list[Measurements]:
    """The paper's: 6.0 and 27.9 ms."""
    return [measured(6.0, {0: 1 - p, 1: p}, 0, runs), measured(27.9, {0: 1.0}, 0)]


def terms(
    members: int = 2, fixed: Mapping[int, int] | None = None, itl_p99_ms: float | None = None
) -> Terms:
    pins = dict(fixed or {})
    base = fixed_table([pins.get(m, 1) for m in range(members)])
    return Terms(NAMES[:members], [256] * members, pins, base, 10_000.0, itl_p99_ms)


def solved(
    windows: Sequence[Measurements],
    live: int,
    table: Sequence[tuple[int, ...]] | None = None,
    given: Terms | None = None,
) -> Solution:
    """With its table checked."""
    wanted = given or terms(len(windows))
    found = solve(Problem(wanted, windows, live, table or wanted.base))
    assert fault_of(found.table, len(windows)) is None
    for number in range(1, len(found.table) + 9):
        for member in wanted.fixed:
            assert row(found.table, number)[member] == row(wanted.base, number)[member]
    return found


@pytest.mark.parametrize(
    ("live", "best", "gain"), [(2, (1, 2), 1.115), (3, (1, 2), 1.111), (4, (1, 3), 1.111)]
)
def test_the_values_of_the_chain(live: int, best: tuple[int, int], gain: float) -> None:
    found = solved(pair(0.35), live)
    assert row(found.table, live) == best
    assert found.gain == found.change == pytest.approx(gain, abs=0.005)
    assert solved(pair(0.35), live, found.table).change == 1.0


def test_little_gain_is_none_and_a_loss_is_told() -> None:
    found = solved(pair(0.05), 2)
    assert found.table == [(1, 1)]
    assert (found.gain, found.change) == (1.0, 1.0)
    stale = solved(pair(0.05), 2, [(1, 1), (1, 2)])
    assert stale.table == [(1, 1)]
    assert stale.change == pytest.approx(1 / 0.74, abs=0.02), "(1, 2) loses 26 %"


def test_a_model_that_nobody_visits_does_not_wait() -> None:
    idle = measured(99.0, {}, 0)
    found = solved([*pair(0.35), idle], 4)
    assert row(found.table, 4) == (1, 3, 1)
    assert solved([pair(0.0)[0], idle], 4).method == "none needed"
    assert solved([pair(0.0)[0], idle], 4).change == 1.0
    assert solved([pair(0.0)[0], idle], 4, [(1, 1), (1, 2)]).change == math.inf


def test_thresholds_of_the_user_stay_and_others_fit_around_them() -> None:
    found = solved(pair(0.35), 8, given=terms(fixed={0: 4}))
    assert row(found.table, 8)[0] == 4
    assert [row(found.table, live)[0] for live in (1, 2, 3, 4, 5)] == [1, 2, 3, 4, 4]
    assert row(found.table, 8)[1] > 1


def test_the_highest_thresholds_make_a_legal_table() -> None:
    """Of the user, as the configuration allows; and planned ones for very many requests."""
    table = fitted([(1, 1)], terms(fixed={0: LONGEST_TABLE}))
    assert fault_of(table, 2) is None and table[-1] == (LONGEST_TABLE, 1)
    table = fitted(fixed_table((1, 5000)), terms())
    assert fault_of(table, 2) is None and row(table, 5000) == (1, LONGEST_TABLE)


def test_any_table_is_fitted() -> None:
    rng = random.Random(1)
    for _ in range(300):
        members = rng.choice((2, 3))
        fixed = {m: rng.randint(1, 5) for m in range(members) if rng.random() < 0.4}
        wanted = terms(members, fixed)
        table = [
            tuple(rng.randint(1, 6) for _ in range(members)) for _ in range(rng.randint(1, 12))
        ]
        found = fitted(table, wanted)
        assert fault_of(found, members) is None, (table, fixed)
        assert [[each[m] for each in found[: len(wanted.base)]] for m in fixed] == [
            [each[m] for each in wanted.base] for m in fixed
        ]


@pytest.mark.parametrize(("limit", "best"), [(60.0, (1, 1)), (70.0, (1, 2)), (90.0, (1, 3))])
def test_a_limit_on_gaps(limit: float, best: tuple[int, int]) -> None:
    found = solved(pair(0.35), 4, given=terms(itl_p99_ms=limit))
    assert row(found.table, 4) == best
    assert ("only within" in found.method) == (limit == 60.0 and found.gain != 1.0)


def test_a_table_that_misses_the_limit_is_left_at_any_price() -> None:
    found = solved(pair(0.35), 4, [(1, 1)] * 3 + [(1, 4)], terms(itl_p99_ms=65.0))
    assert found.change == math.inf


def test_time_for_prompts_is_told() -> None:
    small, large = pair(0.35)
    large = replace(large, prefill=StepSums(10, 1.0, 0.1, 5000, 2_500_000, 500.0))
    found = solved([small, large], 4)
    assert found.reason.endswith("large 34.9 ms for 3; prompts take 20 % of large")


def test_runs_of_one_length_are_replayed_as_recorded() -> None:
    """Drafts of 8: for the model without memory, other thresholds are best."""
    windows = pair(1 / 8, {8: 1250})
    found = solved(windows, 8)
    assert "simulation of recorded runs, as those on small are not geometric, +-" in found.method
    modelled = row(solved(pair(1 / 8), 8).table, 8)
    true = system(NAMES[:2], [256] * 2, windows)
    drawn = decisions.from_runs(true, [{8: 1}, {}], 8, 5_000, 1)
    starts = [decisions.staggered(drawn, seed) for seed in range(100, 112)]

    def rate(vector: tuple[int, ...]) -> float:
        return sum(events.simulate(true, vector, each, 30_000.0).tokens_per_s for each in starts)

    best = max(rate((1, large)) for large in range(1, 9))
    assert rate(row(found.table, 8)) > 0.99 * best
    assert rate(modelled) < 0.95 * best


def test_how_rates_are_known_is_told_with_its_error() -> None:
    assert solved(pair(0.35), 2).method == "model, exact"
    assert re.fullmatch(r"model, simulated \+- 0\.\d+ %", solved(pair(0.35), 48).method)
    limited = solved(pair(0.35), 4, given=terms(itl_p99_ms=90.0)).method
    assert re.match(r"requests simulated one by one \+- 0\.\d+ %, 99 % of gaps within", limited)


@pytest.mark.parametrize(("small_ms", "large_ms"), [(1e-3, 1e6), (1e5, 1e-3), (1e-3, 50.0)])
def test_measurements_that_make_little_sense_are_solved_at_once(
    small_ms: float, large_ms: float
) -> None:
    windows = [measured(small_ms, {0: 0.9999, 1: 1e-4}, 0), measured(large_ms, {0: 1.0}, 0)]
    begun = time.process_time()
    solved(windows, 8, given=terms(itl_p99_ms=100.0))
    assert time.process_time() - begun < 20.0
