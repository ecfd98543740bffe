"""From what members measured to a system, with nothing running."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy
import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.ipc.member_state import Measurements, StepSums
from tokenrouter.throughput_model import estimate

NOTHING = estimate.NO_STEPS


def sums(seconds: numpy.ndarray, tokens: numpy.ndarray) -> StepSums:
    """Of steps that took so many seconds and fed so many tokens."""
    return StepSums(
        len(seconds), float(seconds.sum()), float(seconds @ seconds),
        int(tokens.sum()), int(tokens @ tokens), float(tokens @ seconds),
    )  # fmt: skip


def alike(count: int, ms: float, size: int = 1) -> StepSums:
    """Of ``count`` steps that took ``ms`` each and fed one token a request."""
    return sums(numpy.full(count, ms / 1e3), numpy.full(count, size))


def measured(
    steps: Mapping[int, StepSums],
    hops: Mapping[int, tuple[int, int]] | None = None,
    profile: Mapping[int, StepSums] | None = None,
    prefill: StepSums = NOTHING,
) -> Measurements:
    return Measurements(7.0, dict(steps), prefill, dict(profile or {}), dict(hops or {}), {}, 3.0)


def noisy(law: Callable[[int, float], float], size: int, count: int, seed: int = 1) -> StepSums:
    """Steps of ``size`` requests, each feeding 1 to 9 tokens; times in ms, 5 % noise."""
    rng = numpy.random.default_rng(seed)
    tokens = rng.integers(1, 10, (count, size)).sum(axis=1)
    times = numpy.array([law(size, float(t)) for t in tokens]) * rng.normal(1, 0.05, count)
    return sums(times / 1e3, tokens)


def test_a_window_is_a_difference_and_windows_add_up() -> None:
    before = Measurements(
        10.0, {1: alike(3, 6.0)}, alike(1, 20.0, 9), {1: alike(2, 5.0)}, {0: (3, 3)}, {1: 2}, 5.0
    )
    gained = Measurements(
        2.0, {2: alike(4, 7.0, 2)}, NOTHING, before.profile, {0: (5, 5), 1: (2, 0)}, {3: 1}, 8.0
    )
    after = estimate.total([before, gained])
    assert after.at == 12.0
    assert after.hops == {0: (8, 8), 1: (2, 0)}
    assert after.runs == {1: 2, 3: 1}
    assert estimate.window(before, after) == gained
    assert estimate.window(None, after) == after


def test_a_system_of_two_models() -> None:
    small = measured({1: alike(1000, 6.0), 2: alike(1000, 8.0, 2)}, {0: (650, 650), 1: (350, 0)})
    large = measured({1: alike(350, 27.9)}, {0: (350, 350)})
    found = estimate.system(["s", "l"], [4, 8], [small, large])
    assert [model.name for model in found.models] == ["s", "l"]
    assert [model.max_batch for model in found.models] == [4, 8]
    assert found.routing.tolist() == [[0.65, 0.35], [1.0, 0.0]]
    assert found.committed.tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert found.latencies(0, 4) == pytest.approx([6.0, 8.0, 10.0, 12.0])
    assert found.latencies(1, 8) == pytest.approx([27.9] * 8), "one size tells of no rise"


def test_sizes_not_seen_follow_the_profile_at_the_level_of_those_that_were() -> None:
    profile = {1: alike(3, 5.0), 2: alike(3, 6.0, 2), 8: alike(3, 12.0, 8)}
    law = estimate.latency("m", measured({2: alike(1000, 9.0, 2)}, profile=profile), 16)
    for size, ms in {1: 7.5, 2: 9.0, 5: 13.5, 8: 18.0, 16: 30.0}.items():
        assert law.at(size, 0) == pytest.approx(ms, rel=0.02), size
    unserved = estimate.latency("m", measured({}, profile=profile), 8)
    assert unserved.at(8, 0) == pytest.approx(12.0)


def test_a_size_seen_once_is_not_believed_alone() -> None:
    steps = {1: alike(500, 10.0), 2: alike(1, 40.0, 2)}
    profile = {1: alike(9, 10.0), 2: alike(9, 10.0)}
    law = estimate.latency("m", measured(steps, profile=profile), 2)
    assert 10.0 < law.at(2, 0) < 14.0


def test_tokens_that_cost_time_are_told_from_requests_that_do() -> None:
    def law(size: int, tokens: float) -> float:
        return 20.0 + 3.0 * size + 2.0 * tokens

    steps = {size: noisy(law, size, 400, size) for size in (1, 2, 4)}
    found = estimate.latency("m", measured(steps), 4)
    assert found.per_token == pytest.approx(2.0, rel=0.1)
    for size in (1, 2, 3, 4):
        for tokens in (size, 5.0 * size, 9.0 * size):
            assert found.at(size, tokens) == pytest.approx(law(size, tokens), rel=0.05)


def test_tokens_that_cost_nothing_are_not_made_to_by_noise() -> None:
    found = [
        estimate.per_token([noisy(lambda size, tokens: 20.0, 2, 300, seed)]) for seed in range(20)
    ]
    assert found == [0.0] * 20


def test_steps_that_all_feed_as_much_say_nothing_and_the_profile_speaks() -> None:
    assert estimate.per_token([alike(1000, 6.0), alike(1000, 9.0, 2)]) is None
    assert estimate.per_token([noisy(lambda size, tokens: tokens, 1, 5)]) is None
    profile = {1: noisy(lambda size, tokens: 10.0 + tokens, 1, 30)}
    found = estimate.latency("m", measured({1: alike(500, 11.0)}, profile=profile), 1)
    assert found.per_token == pytest.approx(1.0, rel=0.2)
    assert found.at(1, 1) == pytest.approx(11.0, rel=0.02)


def test_time_for_prompts_can_count_as_time_of_steps() -> None:
    busy = measured({1: alike(100, 6.0)}, prefill=alike(35, 40.0, 500))
    assert estimate.latency("m", busy, 1).at(1, 1) == pytest.approx(6.0)
    assert estimate.prefill_share(busy) == pytest.approx(0.2), "1.4 s of 7 s"
    assert estimate.latency("m", busy, 1, prefill=True).at(1, 1) == pytest.approx(7.5)


def test_few_steps_beside_many_prompts_are_not_taken_for_very_long() -> None:
    busy = measured({1: alike(3, 300.0)}, prefill=alike(130, 50.0, 500))
    assert estimate.latency("m", busy, 1, prefill=True).at(1, 1) == pytest.approx(600.0)


def test_models_that_nobody_visits_are_left_out() -> None:
    steps = {1: alike(10, 1.0)}
    small = measured(steps, {0: (60, 60), 1: (30, 0), 2: (10, 0)})
    large = measured(steps, {0: (30, 30)})
    lost = measured(steps, {2: (10, 10)})
    idle = measured({}, {})
    windows = [small, large, lost, idle]
    assert estimate.reached(windows) == (0, 1)
    found = estimate.system("abcd", [None] * 4, windows, (0, 1))
    assert found.routing == pytest.approx(numpy.array([[2 / 3, 1 / 3], [1.0, 0.0]]))
    assert estimate.reached([idle, idle]) == (0,)
    alone = measured(steps, {1: (100, 100)})
    assert estimate.reached([idle, alone]) == (1,)


def test_what_was_not_seen_is_named() -> None:
    steps = {1: alike(10, 1.0)}
    small, idle = measured(steps, {0: (60, 60)}), measured(steps)
    with pytest.raises(ConfigError, match="large: no request was routed after a step on it"):
        estimate.system(["small", "large"], [4, 4], [small, idle])
    with pytest.raises(ConfigError, match="no request ever reaches large"):
        estimate.system(["small", "large"], [4, 4], [small, measured(steps, {0: (1, 1)})])
    with pytest.raises(ConfigError, match="m: no step was measured"):
        estimate.latency("m", measured({}))


def drawn(seed: int, count: int, draw: Callable[[numpy.random.Generator], float]) -> dict[int, int]:
    """Lengths of ``count`` runs."""
    rng = numpy.random.default_rng(seed)
    lengths, counts = numpy.unique([int(draw(rng)) for _ in range(count)], return_counts=True)
    return dict(zip(lengths.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize("p", [0.05, 0.35, 0.8, 1.0])
@pytest.mark.parametrize("count", [250, 5000])
def test_geometric_runs_pass(p: float, count: int) -> None:
    assert all(
        estimate.geometric(drawn(seed, count, lambda r: r.geometric(p))) for seed in range(9)
    )


@pytest.mark.parametrize("count", [250, 5000])
def test_fixed_and_nearly_fixed_runs_do_not(count: int) -> None:
    for seed in range(9):
        assert not estimate.geometric({4: count})
        assert not estimate.geometric(drawn(seed, count, lambda r: min(r.geometric(0.2), 4)))
        assert not estimate.geometric(drawn(seed, count, lambda r: r.integers(3, 8)))
    assert estimate.geometric({4: estimate.LEAST_RUNS - 1}), "too few to tell"
