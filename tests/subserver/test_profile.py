"""The profile of a member that was just loaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from tests.subserver.engines import PrefixCache
from tests.subserver.ranked import Rank
from tokenrouter.ipc.member_state import StepSums
from tokenrouter.subserver.engine import Work
from tokenrouter.subserver.profile import BUDGET_S, CONTEXT, LONGEST, profile, profile_of_law
from tokenrouter.subserver.timed import TimedEngine


class Slow:
    """A timed engine on a clock of its own: ``law`` gives a step's time by requests and tokens."""

    def __init__(
        self,
        law: Callable[[int, int], float],
        pool_tokens: int = 10_000,
        max_visits: int = 64,
        kind: type[TimedEngine] = TimedEngine,
    ) -> None:
        self.now = 0.0
        self.sizes: list[tuple[int, int]] = []
        self.engine = kind(
            lambda b: 0.0, range(64), pool_tokens, max_visits, wait_until=lambda due: None
        )
        self._law = law

    def step(self, work: Sequence[Work]) -> None:
        assert sum(n for _, n in work) <= self.engine.free_tokens()
        assert all(visit.computed + n <= visit.length for visit, n in work)
        self.engine.step(work, ())
        self.sizes.append((len(work), work[0][1]))
        self.now += self._law(len(work), sum(n for _, n in work))

    def profile(self, max_batch: int = 256, budget_s: float = BUDGET_S) -> dict[int, StepSums]:
        found = profile(self.engine, max_batch, self.step, budget_s, lambda: self.now)
        assert self.engine.free_tokens() == self.engine.pool_tokens
        assert self.engine.visits == 0
        return found


def law(batch: int, tokens: int) -> float:
    return 0.001 + 0.0001 * batch + 0.00001 * tokens


def test_sums_hold_the_law_of_requests_and_tokens() -> None:
    slow = Slow(law)
    found = slow.profile()
    assert list(found) == [1, 2, 4, 8, 16, 32]
    for size, sums in found.items():
        tokens = [size, 2 * size, 8 * size]
        seconds = [law(size, each) for each in tokens]
        assert (sums.count, sums.tokens) == (3, sum(tokens))
        assert sums.seconds == pytest.approx(sum(seconds))
        assert sums.tokens_squared == sum(each * each for each in tokens)
        assert sums.tokens_seconds == pytest.approx(
            sum(map(float.__mul__, map(float, tokens), seconds))
        )
        assert [n for batch, n in slow.sizes if batch == size and n != CONTEXT][:3] == [1, 1, 1]


@pytest.mark.parametrize(
    ("max_batch", "max_visits", "pool_tokens", "sizes"),
    [
        (1, 64, 10_000, [1]),
        (6, 64, 10_000, [1, 2, 4, 6]),
        (256, 3, 10_000, [1, 2, 3]),
        (256, 64, 5 * LONGEST, [1, 2, 4, 5]),
        (256, 64, LONGEST - 1, []),
    ],
)
def test_sizes_are_those_that_fit(
    max_batch: int, max_visits: int, pool_tokens: int, sizes: list[int]
) -> None:
    assert list(Slow(law, pool_tokens, max_visits).profile(max_batch)) == sizes


@pytest.mark.parametrize(
    ("step_s", "sizes"), [(0.5, [1]), (0.08, [1, 2, 4]), (0.055, [1, 2, 4, 8])]
)
def test_a_slow_model_measures_fewer_sizes(step_s: float, sizes: list[int]) -> None:
    slow = Slow(lambda batch, tokens: step_s)
    assert list(slow.profile()) == sizes
    assert slow.now <= BUDGET_S + step_s


def test_one_step_that_takes_long_by_accident_changes_nothing() -> None:
    slow = Slow(law)
    plain = slow.step

    def hiccup(work: Sequence[Work]) -> None:
        plain(work)
        if len(slow.sizes) == 2:
            slow.now += 0.1

    slow.step = hiccup  # type: ignore[method-assign]
    assert slow.profile()[1].seconds == pytest.approx(Slow(law).profile()[1].seconds)


def test_nothing_is_left_in_a_prefix_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is flushed, and no visit found what another had computed."""
    slow = Slow(law, kind=PrefixCache)
    flushed: list[str] = []
    monkeypatch.setattr(
        slow.engine, "control", lambda action, arguments: flushed.append(action) or ""
    )
    slow.profile()
    assert flushed == ["flush_cache"]
    assert slow.engine.hits == 0  # type: ignore[attr-defined]


def test_every_rank_makes_the_same_batches() -> None:
    first, second = (
        Rank(lambda b: 0.0, range(64), 400, 16, wait_until=lambda due: None) for _ in range(2)
    )
    profile(first, 256, lambda work: first.step(work, ()), math.inf)
    profile(second, 256, second.replay, math.inf)
    assert first.digest() == second.digest() != 0


def test_a_timed_member_is_known_without_waiting() -> None:
    found = profile_of_law(lambda batch: 0.5 + 0.25 * batch, 5)
    assert {size: sums.seconds / sums.count for size, sums in found.items()} == {
        size: pytest.approx(0.5 + 0.25 * size) for size in (1, 2, 4, 5)
    }
    assert profile_of_law(lambda batch: 0.0, 5) == {}
