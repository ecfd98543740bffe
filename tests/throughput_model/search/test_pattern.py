import numpy

from tokenrouter.throughput_model.search import pattern
from tokenrouter.throughput_model.search.space import Space

SPACE = Space((1, 1, 1), (64, 64, 64), 63)


def hills(vectors):
    """Two: a wide low one, and a narrow high one at (3, 40, 5)."""
    points = numpy.array(vectors)
    wide = -((points - (30, 5, 10)) ** 2).sum(axis=1) / 1000
    narrow = 2 - abs(points - (3, 40, 5)).sum(axis=1) / 10
    return numpy.maximum(wide, narrow)


def test_a_climb_ends_on_a_peak():
    scores = pattern.Scores(hills)
    pattern.climb(SPACE, scores, [(25, 1, 1)])
    assert (30, 5, 10) in scores.known


def test_the_higher_of_two_peaks_is_found_from_several_starts():
    scores = pattern.Scores(hills)
    begin = pattern.starts(SPACE, numpy.random.default_rng(0), 10)
    pattern.climb(SPACE, scores, begin)
    assert scores.best(1) == [(3, 40, 5)]
    assert all(each in SPACE for each in scores.known)


def test_no_vector_is_scored_twice():
    asked = []

    def score(vectors):
        asked.extend(vectors)
        return hills(vectors)

    scores = pattern.Scores(score)
    pattern.climb(SPACE, scores, pattern.starts(SPACE, numpy.random.default_rng(0), 10))
    scores.add(scores.known)
    assert len(asked) == len(set(asked)) == len(scores.known)


def test_a_space_of_one_vector_needs_no_steps():
    scores = pattern.Scores(hills)
    pattern.climb(Space((1, 2, 1), (1, 2, 1), 0), scores, [(1, 2, 1)])
    assert list(scores.known) == [(1, 2, 1)]


def test_climbers_end_where_no_neighbour_is_better():
    scores = pattern.Scores(hills)
    pattern.climb(SPACE, scores, [(60, 1, 1)])
    peak = scores.best(1)[0]
    assert all(scores.known[each] < scores.known[peak] for each in SPACE.neighbours(peak, 1))
