"""What a loop counts: waits, steps by size, and the throughput of the last seconds."""

from __future__ import annotations

import pytest

from tests.subserver.builders import make_visit
from tokenrouter.subserver.stats import MARK_S, Stats


def test_only_visits_that_will_sample_have_waited() -> None:
    stats = Stats(0.0)
    decoding = make_visit(1, 5, 4)
    chunked = make_visit(2, 100, 0)
    early = make_visit(3, 10, 0, control=False, eager=True)
    decoding.ready_since = 9.0
    stats.launched([(decoding, 1), (chunked, 50), (early, 10)], 9.25)
    waits = stats.threshold_wait.snapshot()
    assert sum(waits.counts) == 1
    assert waits.sum == pytest.approx(0.25)
    assert stats.fed_tokens == 61


@pytest.mark.parametrize(
    ("size", "bound"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (256, 256), (257, 512)]
)
def test_steps_are_kept_by_powers_of_two(size: int, bound: int) -> None:
    stats = Stats(0.0)
    stats.stepped(size, 0.003, 1.0)
    stats.stepped(size, 0.5, 2.0)
    ((found, times),) = stats.steps().items()
    assert found == bound
    assert (sum(times.counts), times.sum) == (2, pytest.approx(0.503))
    assert stats.batches == {size: 2}
    assert stats.step_ms == pytest.approx(251.5)


def test_throughput_follows_what_is_written_and_falls_when_nothing_is() -> None:
    stats = Stats(100.0)
    now = 100.0
    for _ in range(1000):  # 5 tokens every 10 ms
        now += 0.01
        stats.written_tokens += 5
        stats.stepped(5, 0.01, now)
    assert stats.throughput(now) == pytest.approx(500, rel=0.01)
    for _ in range(1000):  # then one
        now += 0.01
        stats.written_tokens += 1
        stats.stepped(1, 0.01, now)
    assert stats.throughput(now) == pytest.approx(100, rel=0.01)
    assert stats.throughput(now + 1000) < 1


def test_throughput_of_the_first_moment_is_not_exaggerated() -> None:
    stats = Stats(100.0)
    stats.written_tokens = 10
    assert stats.throughput(100.001) == pytest.approx(10 / MARK_S)
