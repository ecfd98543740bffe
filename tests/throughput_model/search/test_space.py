import itertools

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.parameters import Latency, Model, System
from tokenrouter.throughput_model.search.space import Space, clamped, space


def system(*limits: int | None) -> System:
    count = len(limits)
    models = tuple(Model(f"m{i}", Latency(base=1.0), limit) for i, limit in enumerate(limits))
    return System(models, numpy.full((count, count), 1 / count), numpy.ones((count, count)))


@some.composite
def cases(draw):
    """A system, a number of requests, and thresholds of some models that it can bear."""
    limits = draw(some.lists(some.none() | some.integers(1, 6), min_size=1, max_size=4))
    requests = draw(some.integers(1, 9))
    fixed = draw(some.dictionaries(some.integers(0, len(limits) - 1), some.integers(1, 6)))
    return system(*limits), requests, fixed


@given(cases())
def test_a_space_has_exactly_the_vectors_that_a_system_accepts(case):
    models, requests, fixed = case

    def legal(vector):
        try:
            models.check(requests, vector)
        except ConfigError:
            return False
        return all(vector[index] == each for index, each in fixed.items())

    candidates = itertools.product(range(1, requests + 1), repeat=models.size)
    expected = [each for each in candidates if legal(each)]
    if expected:
        assert list(space(models, requests, fixed)) == expected
    else:
        with pytest.raises(ConfigError):
            space(models, requests, fixed)


@given(cases(), some.integers(1, 8), some.randoms(use_true_random=False))
def test_neighbours_clipped_and_random_vectors_are_inside(case, step, chance):
    vectors = clamped(*case)
    one = vectors.clip(chance.randrange(1, 12) for _ in vectors.low)
    drawn = vectors.random(5, numpy.random.default_rng(chance.randrange(1000)))
    near = vectors.neighbours(one, step)
    assert all(each in vectors for each in (one, *drawn, *near))
    assert one not in near


def test_clipping_leaves_what_is_inside():
    vectors = space(system(None, 4, None), 8)
    assert all(vectors.clip(each) == each for each in vectors)


def test_neighbours_move_one_coordinate_or_exchange_two():
    vectors = Space((1, 1), (8, 8), 7)
    assert vectors.neighbours((3, 4), 2) == {(5, 4), (1, 4), (3, 6), (3, 2), (5, 2), (1, 6)}
    assert vectors.neighbours((1, 8), 4) == {(1, 4), (5, 4)}  # at the edge


def test_a_large_space_is_not_listed():
    vectors = space(system(None, None, None, None), 256)
    assert vectors.some(1000) is None
    assert len(space(system(None, None), 16).some(136) or []) == 136


@given(cases())
def test_fixed_thresholds_shrink_for_few_requests_and_never_as_these_grow(case):
    models, _, fixed = case
    before: tuple[int, ...] = (1,) * models.size
    for live in range(1, 30):
        vectors = clamped(models, live, fixed)
        assert models.check(live, vectors.low) == vectors.low
        assert all(old <= new for old, new in zip(before, vectors.low, strict=True))
        before = vectors.low
    kept = {
        index: min(each, models.models[index].max_batch or each) for index, each in fixed.items()
    }
    assert all(before[index] == each for index, each in kept.items())


def test_an_unknown_model_cannot_be_fixed():
    with pytest.raises(ConfigError, match="no model 2"):
        space(system(None, None), 4, {2: 1})
