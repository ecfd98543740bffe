import numpy
import pytest

from tokenrouter.throughput_model.count_simulation import tapes
from tokenrouter.throughput_model.parameters import Latency, Model, System

ROUTING = [[0.65, 0.35 - 3e-5, 3e-5], [1.0, 0.0, 0.0], [0.1, 0.2, 0.7]]


@pytest.fixture
def system() -> System:
    models = tuple(Model(name, Latency(base=1.0)) for name in "abc")
    return System(models, numpy.array(ROUTING), numpy.ones((3, 3)))


def decisions(drawn: tapes.Tapes) -> numpy.ndarray:
    """(M, length, M): one where a decision goes."""
    known = numpy.diff(drawn.sums[:, : drawn.length + 1], axis=1)
    return numpy.concatenate([known, 1 - known.sum(axis=2, keepdims=True)], axis=2)


def test_a_tape_has_the_proportions_of_its_row(system):
    drawn = tapes.draw(system, 8, 100_000, seed=0)
    counts = decisions(drawn).sum(axis=1)
    assert drawn.length >= 100_000
    assert abs(counts - drawn.length * numpy.array(ROUTING)).max() <= 1


def test_each_block_has_them_too_and_long_ones_for_many_requests(system):
    drawn = tapes.draw(system, 256, 100_000, seed=0)
    block = tapes.PER_REQUEST * 256
    blocks = decisions(drawn).reshape(3, -1, block, 3).sum(axis=2)
    assert abs(blocks - block * numpy.array(ROUTING)[:, None, :]).max() <= 1


def test_the_tape_begins_again_behind_its_end(system):
    drawn = tapes.draw(system, 8, 1000, seed=0)
    ways = numpy.diff(drawn.sums, axis=1)
    assert ways.shape[1] == drawn.length + 8
    assert (ways[:, drawn.length :] == ways[:, :8]).all()


def test_a_seed_gives_the_same_tape_and_another_seed_another(system):
    first, again, other = (tapes.draw(system, 8, 1000, seed).sums for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_decisions_in_a_row_are_independent(system):
    ways = decisions(tapes.draw(system, 8, 200_000, seed=0))[0, :, 0]
    pairs = numpy.corrcoef(ways[:-1], ways[1:])[0, 1]
    assert abs(pairs) < 4 / numpy.sqrt(ways.size)


def test_a_long_run_has_a_tape_of_bounded_length(system):
    drawn = tapes.draw(system, 8, 10**9, seed=0)
    assert tapes.LONGEST <= drawn.length < tapes.LONGEST + tapes.SHORTEST_BLOCK
