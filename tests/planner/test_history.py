"""Windows of what members measured, and changes told from noise."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy
import pytest

from tokenrouter.ipc.member_state import Measurements, StepSums
from tokenrouter.planner.history import LONGEST_S, History
from tokenrouter.throughput_model.estimate import NO_STEPS


class Member:
    """Counts steps of 1 or 2 visits, ``ms`` each with 10 % noise, that leave with ``p``."""

    def __init__(self, seed: int, ms: float, p: float) -> None:
        self.ms, self.p = ms, p
        self._rng = numpy.random.default_rng(seed)
        self._clock = 0.0
        self._sums = {1: numpy.zeros(6), 2: numpy.zeros(6)}
        self._hops = {0: numpy.zeros(2, int), 1: numpy.zeros(2, int)}

    def work(self, seconds: float) -> None:
        end = self._clock + seconds
        while self._clock < end:
            size = int(self._rng.integers(1, 3))
            took = self.ms / 1e3 * float(self._rng.normal(1.0, 0.1))
            self._clock += took
            self._sums[size] += (1, took, took * took, size, size * size, size * took)
            for _ in range(size):
                self._hops[int(self._rng.random() < self.p)] += (1, 1)

    def look(self) -> Measurements:
        steps = {
            size: StepSums(int(s[0]), s[1], s[2], int(s[3]), int(s[4]), s[5])
            for size, s in self._sums.items()
            if s[0]
        }
        hops = {to: (int(count), int(kept)) for to, (count, kept) in self._hops.items()}
        return Measurements(self._clock, steps, NO_STEPS, {}, hops, {}, 0.0)


def observe(
    members: list[Member], history: History, looks: int, start: int = 0
) -> list[str | None]:
    """A look a second; what `changed` says at each."""
    said = []
    for second in range(start + 1, start + looks + 1):
        for index, member in enumerate(members):
            member.work(1.0)
            history.add(index, member.look(), float(second))
        said.append(history.changed(3.0))
    return said


def test_windows_are_of_the_time_asked_for() -> None:
    history, members = History(2), [Member(1, 5.0, 0.3), Member(2, 20.0, 1.0)]
    assert history.span == 0.0
    observe(members, history, 11)
    assert history.span == 10.0
    for seconds, end, expected in ((3.0, 0.0, 3.0), (99.0, 0.0, 10.0), (99.0, 4.0, 6.0)):
        first, other = history.windows(seconds, end)
        assert first.at == pytest.approx(expected, abs=0.3)
        assert first.steps[1].count + first.steps[2].count == pytest.approx(200 * expected, rel=0.1)
        assert other.at == pytest.approx(expected, abs=0.3)
    history.begin(8.0)
    assert history.span == 3.0
    history.forget(1)
    assert history.span == 0.0


def test_a_member_that_was_started_again_counts_from_there() -> None:
    history, members = History(1), [Member(1, 5.0, 0.3)]
    observe(members, history, 5)
    observe([Member(2, 5.0, 0.3)], history, 3, start=5)
    assert history.span == 2.0
    assert history.windows()[0].at == pytest.approx(2.0, abs=0.1)


def test_the_past_is_forgotten() -> None:
    history = History(1)
    observe([Member(1, 50.0, 0.3)], history, 100)
    assert history.span == LONGEST_S


def test_noise_is_no_change() -> None:
    for seed in range(6):
        history = History(2)
        members = [Member(seed, 6.0, 0.35), Member(seed + 50, 27.9, 1.0)]
        assert observe(members, history, 60) == [None] * 60


def slower(members: list[Member]) -> None:
    members[1].ms *= 1.3


def rarer(members: list[Member]) -> None:
    members[0].p = 0.117


@pytest.mark.parametrize(
    ("change", "said"),
    [(slower, r"steps of model 1 take 1\.\d+ times as long"), (rarer, r"model 0 sends 0\.\d+ of")],
)
def test_a_change_is_noticed_within_seconds(
    change: Callable[[list[Member]], None], said: str
) -> None:
    history = History(2)
    members = [Member(5, 6.0, 0.35), Member(6, 27.9, 1.0)]
    assert observe(members, history, 12) == [None] * 12
    change(members)
    after = [each for each in observe(members, history, 4, start=12) if each]
    assert re.match(said, after[-1])


def test_a_small_change_is_none() -> None:
    history = History(2)
    members = [Member(5, 6.0, 0.35), Member(6, 27.9, 1.0)]
    observe(members, history, 12)
    members[1].ms *= 1.05
    members[0].p = 0.36
    assert observe(members, history, 10, start=12) == [None] * 10
