"""The timed engine: a pure function of the context, and no more time than asked for."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.subserver.builders import make_visit
from tokenrouter.schedulers.signals import (
    Aleatoric,
    Entropy,
    Epistemic,
    NormalisedEntropy,
    TopLogits,
    TopProbability,
)
from tokenrouter.subserver.engine import Visit
from tokenrouter.subserver.timed import (
    TimedEngine,
    aleatoric,
    context_of,
    entropy,
    epistemic,
    extend_context,
    next_token,
    sleep_then_spin,
    step_law,
    top_probability,
    uniform,
)

ALPHABET = range(100, 200)


def make(pool: int = 100, slots: int = 4, seed: int = 7, **options: object) -> TimedEngine:
    return TimedEngine(lambda b: 0.0, ALPHABET, pool, slots, seed=seed, **options)


def admitted(engine: TimedEngine, uid: int, tokens: list[int]) -> Visit:
    visit = make_visit(uid, len(tokens))
    visit.tokens[:] = tokens
    assert engine.admit(visit)
    return visit


def feed(engine: TimedEngine, visit: Visit, n: int) -> int:
    batch = engine.step([(visit, n)], ())
    visit.computed += n
    return batch.tokens[0]


tokens = st.lists(st.integers(0, 150_000), min_size=1, max_size=12)
quick = settings(derandomize=True, deadline=None, max_examples=50)


@quick
@given(tokens, st.data())
def test_the_token_depends_on_the_context_and_not_on_how_it_was_fed(ids, data):
    engine = make()
    visit = admitted(engine, 1, ids)
    while visit.pending:
        token = feed(engine, visit, data.draw(st.integers(1, visit.pending)))
    assert token == next_token(context_of(ids, seed=7), ALPHABET)


@quick
@given(tokens, st.data())
def test_a_cut_context_is_the_shorter_context(ids, data):
    engine = make()
    visit = admitted(engine, 1, [*ids, 5, 6, 7])
    feed(engine, visit, visit.pending)
    length = data.draw(st.integers(0, len(ids)))
    engine.truncate(visit, length)
    visit.computed = length
    visit.tokens[:] = ids if length < len(ids) else [*ids, 8]
    assert engine.free_tokens() == 100 - length
    token = feed(engine, visit, visit.pending)
    assert token == next_token(context_of(visit.tokens, seed=7), ALPHABET)


def test_every_token_its_place_and_the_seed_matter():
    context = context_of([1, 2, 3], seed=7)
    others = [
        context_of(ids, seed)
        for ids, seed in [([1, 2, 4], 7), ([1, 2], 7), ([2, 1, 3], 7), ([1, 2, 3, 3], 7),
                          ([0, 1, 2, 3], 7), ([1, 2, 3], 8)]
    ]  # fmt: skip
    assert len({context, *others}) == 7
    assert context == extend_context(context_of([1, 2], 7), 3)


def splitmix64(state: int) -> int:
    """Sebastiano Vigna's generator: the output after ``state``."""
    z = (state + 0x9E3779B97F4A7C15) % 2**64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def test_the_function_is_the_documented_one():
    """So that runs recorded with one version can be compared with another's."""
    assert context_of([], seed=0) == splitmix64(0) == 0xE220A8397B1DCDAF, "published value"
    context = splitmix64(5)
    for token in (101, 150_000, 0):
        context = splitmix64(context ^ ((token + 1) * 0x9E3779B97F4A7C15 % 2**64))
    assert context_of([101, 150_000, 0], seed=5) == context
    assert next_token(context, ALPHABET) == 100 + splitmix64(context) % 100
    assert uniform(context, 3) == (splitmix64(context + 3) >> 11) / 2**53
    assert entropy(context) == uniform(context, 1)
    assert top_probability(context) == 1 - uniform(context, 2)


def test_ids_that_another_model_does_not_have_are_left_out():
    engine = make()
    engine.limit_vocabulary(103)
    visit = admitted(engine, 1, [1] * 60)
    assert {feed(engine, visit, 1) for _ in range(60)} == {100, 101, 102}


def test_outputs_are_diverse():
    ids = [100]
    for _ in range(200):
        ids.append(next_token(context_of(ids, 0), ALPHABET))
    assert len(set(ids)) > 75


def test_signals_are_uniform_and_differ_from_each_other():
    contexts = [context_of([i], 0) for i in range(2000)]
    for signal, most in ((entropy, 1), (top_probability, 1), (aleatoric, 2.5), (epistemic, 1)):
        values = [signal(context) / most for context in contexts]
        assert sum(values) / len(values) == pytest.approx(0.5, abs=0.03)
        assert min(values) >= 0.0
        assert max(values) <= 1.0
    assert all(top_probability(context) > 0.0 for context in contexts)
    assert all(1.0 - top_probability(c) != entropy(c) for c in contexts)
    assert all(len({aleatoric(c) / 2.5, epistemic(c), entropy(c)}) == 3 for c in contexts)


def test_signals_of_each_row():
    engine = make()
    visits = [admitted(engine, uid, [uid, uid]) for uid in (1, 2)]
    single = {
        Entropy(): entropy, NormalisedEntropy(): entropy, TopProbability(): top_probability,
        Aleatoric(): aleatoric, Epistemic(): epistemic,
    }  # fmt: skip
    batch = engine.step([(v, 2) for v in visits], (*single, TopLogits(3)))
    contexts = [context_of(visit.tokens, 7) for visit in visits]
    assert set(batch.signals) == {*single, TopLogits(3)}
    for signal, function in single.items():
        assert batch.signals[signal] == [function(context) for context in contexts]
    for row, context in zip(batch.signals[TopLogits(3)], contexts, strict=True):
        assert row == sorted((uniform(context, 3 + i) for i in range(3)), reverse=True)
    assert make().step([], ()).signals == {}


def test_slots_and_tokens_are_counted():
    engine = make(pool=20, slots=2)
    first, second = admitted(engine, 1, [1] * 8), admitted(engine, 2, [2] * 8)
    third = make_visit(3)
    third.computed = 1
    assert not engine.admit(third)
    assert (third.computed, third.handle) == (1, None), "nothing was changed"
    engine.step([(first, 5), (second, 3)], ())
    first.computed, second.computed = 5, 3
    assert (engine.free_tokens(), engine.visits) == (12, 2)
    engine.truncate(first, 2)
    first.computed = 2
    assert engine.free_tokens() == 15
    engine.release(first)
    assert (engine.free_tokens(), engine.visits) == (17, 1)
    assert engine.admit(third)
    engine.release(second)
    third.computed = 0
    engine.release(third)
    assert (engine.free_tokens(), engine.visits) == (20, 0)


def test_a_released_visit_starts_again_from_nothing():
    engine = make()
    visit = admitted(engine, 1, [1, 2, 3])
    token = feed(engine, visit, 3)
    engine.release(visit)
    assert engine.admit(visit)
    assert visit.computed == 0
    assert feed(engine, visit, 3) == token


class Clock:
    """Time that passes only while somebody waits for a moment."""

    def __init__(self) -> None:
        self.now = 50.0
        self.waited: list[float] = []

    def wait_until(self, due: float) -> None:
        self.waited.append(due - self.now)
        self.now = due


def test_the_time_of_a_step_includes_its_own_work():
    clock = Clock()

    class Slow(TimedEngine):
        """Takes 2 ms to feed a visit."""

        def _feed(self, visit: Visit, n: int) -> int:
            clock.now += 0.002
            return super()._feed(visit, n)

    engine = Slow(
        step_law(10.0), ALPHABET, 100, 4, wait_until=clock.wait_until, clock=lambda: clock.now
    )
    feed(engine, admitted(engine, 1, [1, 2]), 1)
    assert clock.waited == [pytest.approx(0.008)], "counted from the call, not from the end"


def test_waiting_ends_on_time_and_not_before():
    due = time.monotonic() + 0.02
    sleep_then_spin(due)
    assert due <= time.monotonic()
    start = time.monotonic()
    sleep_then_spin(start - 1.0)
    assert time.monotonic() - start < 0.5, "a moment that has passed is not waited for"


def test_the_time_of_a_step_is_that_of_its_number_of_visits():
    clock = Clock()
    law = step_law({"base": 6.0, "per_request": 0.5})
    engine = TimedEngine(
        law, ALPHABET, 100, 4, wait_until=clock.wait_until, clock=lambda: clock.now
    )
    visits = [admitted(engine, uid, [1, 2, 3]) for uid in (1, 2, 3)]
    engine.step([(visit, 3) for visit in visits], ())
    engine.step([(visits[0], 1)], ())
    assert clock.waited == [pytest.approx(0.0075), pytest.approx(0.0065)]


@pytest.mark.parametrize(
    ("step_ms", "seconds"),
    [
        (27.9, {1: 0.0279, 100: 0.0279}),
        (5, {1: 0.005}),
        ({"base": 6.0, "per_request": 0.1}, {1: 0.0061, 20: 0.008}),
        ({"base": 6.0}, {1: 0.006, 20: 0.006}),
        ({4: 20.0, 1: 10.0, 8: 28.0}, {1: 0.01, 2: 0.01 + 0.01 / 3, 4: 0.02, 6: 0.024, 8: 0.028}),
        ({2: 10.0, 4: 20.0}, {1: 0.01, 3: 0.015, 5: 0.02, 99: 0.02}),
        ({3: 7.0}, {1: 0.007, 3: 0.007, 9: 0.007}),
    ],
    ids=["constant", "integer", "affine", "base", "table", "outside", "one"],
)
def test_step_laws(step_ms, seconds):
    law = step_law(step_ms)
    for batch, wanted in seconds.items():
        assert law(batch) == pytest.approx(wanted), batch
