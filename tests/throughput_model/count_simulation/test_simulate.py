import itertools

import numpy
import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model import systems
from tokenrouter.throughput_model.chain import exact
from tokenrouter.throughput_model.count_simulation import simulate
from tokenrouter.throughput_model.parameters import Latency, Model, System
from tokenrouter.throughput_model.search.space import space


def r2r(p: float = 0.35, large: Latency | None = None, max_batch: int | None = None) -> System:
    models = (
        Model("small", Latency(base=6.0)),
        Model("large", large or Latency(base=27.9), max_batch),
    )
    return systems.r2r(models, p)


# reference: an exact chain, confirmed by a simulation of single requests
@pytest.mark.parametrize(
    ("requests", "thresholds", "tokens_per_s"),
    [
        (1, (1, 1), 63.43), (2, (1, 1), 98.96), (2, (1, 2), 110.32),
        (4, (1, 1), 187.19), (4, (1, 3), 207.95), (4, (1, 4), 190.74),
    ],
)  # fmt: skip
def test_values_of_the_exact_chain(requests, thresholds, tokens_per_s):
    (found,) = simulate.predict(r2r(), requests, [thresholds], events=400_000)
    assert found.tokens_per_s == pytest.approx(tokens_per_s, rel=0.002)
    assert found.method == "simulated"
    assert found.states == 0


def random_system(seed: int) -> tuple[System, int, tuple[int, ...]]:
    """A system of 2 to 4 models, a number of requests, and thresholds; its chain is small."""
    chance = numpy.random.default_rng(seed)
    count = 2 + seed % 3
    requests = int(chance.integers(2, (12, 5, 4)[count - 2]))
    models = tuple(
        Model(
            f"m{index}",
            Latency(base=float(chance.integers(2, 12)), per_request=float(chance.integers(0, 2))),
            None if chance.random() < 0.5 else int(chance.integers(1, requests + 1)),
        )
        for index in range(count)
    )
    routing = chance.dirichlet(numpy.ones(count), size=count)
    system = System(models, routing, chance.uniform(0, 2, (count, count)), tick_ms=1.0)
    return system, requests, space(system, requests).random(1, chance)[0]


@pytest.mark.parametrize("seed", range(12))
def test_the_exact_chain_and_the_simulation_agree(seed):
    system, requests, thresholds = random_system(seed)
    known = exact.predict(system, requests, thresholds)
    (found,) = simulate.predict(system, requests, [thresholds], events=400_000)
    assert found.tokens_per_s == pytest.approx(known.tokens_per_s, rel=0.003)
    assert found.utilisation == pytest.approx(known.utilisation, rel=0.01)
    assert found.mean_batch == pytest.approx(known.mean_batch, rel=0.01)
    assert found.mean_queue == pytest.approx(known.mean_queue, rel=0.03, abs=0.01)


@pytest.mark.parametrize("thresholds", [(1, 140), (1, 200), (60, 150)])
def test_they_agree_on_a_crowd(thresholds):
    known = exact.predict(r2r(), 256, thresholds, max_states=60_000)
    (found,) = simulate.predict(r2r(), 256, [thresholds])
    assert found.tokens_per_s == pytest.approx(known.tokens_per_s, rel=0.003)


def test_the_figures_of_each_model_agree_with_the_laws_of_queues():
    system = r2r(large=Latency(base=20.0, per_request=1.0), max_batch=5)
    (found,) = simulate.predict(system, 12, [(2, 3)])
    visits = found.tokens_per_s * system.visits_per_token / 1e3  # a millisecond, each model
    steps = visits / found.mean_batch
    assert steps[0] * 6.0 == pytest.approx(found.utilisation[0], rel=0.01)
    assert steps[1] * (20.0 + found.mean_batch[1]) == pytest.approx(found.utilisation[1], rel=0.01)
    held = [
        queue + busy * batch
        for queue, busy, batch in zip(
            found.mean_queue, found.utilisation, found.mean_batch, strict=True
        )
    ]
    assert sum(held) == pytest.approx(12, rel=0.03)  # a longer batch takes longer: not exact
    assert found.mean_batch[1] <= 5


def test_the_standard_error_is_that_of_many_seeds():
    vectors = [(1, 1), (1, 4), (1, 8)]
    runs = [simulate.predict(r2r(), 8, vectors, 20_000, seed) for seed in range(30)]
    for column in zip(*runs, strict=True):
        spread = numpy.std([each.tokens_per_s for each in column], ddof=1)
        assert 0.5 < spread / numpy.mean([each.stderr for each in column]) < 2.0


def test_vectors_share_their_luck():
    """Thresholds that a crowd always meets change nothing at all."""
    one, low = simulate.predict(r2r(), 256, [(1, 1), (2, 8)], 10_000)
    assert one.tokens_per_s == low.tokens_per_s


def test_a_seed_gives_the_same_numbers_whatever_else_is_asked():
    one = simulate.predict(r2r(), 8, [(1, 3)], 5000, seed=3)
    many = simulate.predict(r2r(), 8, [(1, 1), (1, 3)], 5000, seed=3)
    assert one[0] == many[1]
    assert one != simulate.predict(r2r(), 8, [(1, 3)], 5000, seed=4)


def test_completions_of_one_moment_come_before_the_launches():
    """Two steps of 0.1 ms end with one of 0.2 only if 0.1 + 0.1 counts as 0.2, for ever."""
    models = tuple(Model(name, Latency(base=ms)) for name, ms in (("a", 0.1), ("b", 0.3)))
    system = System(models, numpy.array([[0, 1], [1, 0]]), numpy.ones((2, 2)))
    (found,) = simulate.predict(system, 2, [(1, 1)], events=3200)
    # both are on a, then on b, together: 4 tokens each 0.4 ms
    assert found.tokens_per_s == pytest.approx(4 / 0.4e-3, rel=1e-9)
    assert found.utilisation == pytest.approx((0.25, 0.75), rel=1e-6)


def test_an_order_of_completions_that_must_not_matter():
    """Commensurate steps: a pair that ends together gives the threshold of 2 what it needs."""
    models = tuple(Model(name, Latency(base=ms), 1) for name, ms in (("a", 1.0), ("b", 1.0)))
    third = Model("c", Latency(base=1.0))
    routing = numpy.array([[0, 0.5, 0.5], [1, 0, 0], [1, 0, 0]])
    system = System((*models, third), routing, numpy.ones((3, 3)))
    mirrored = System((models[0], third, models[1]), routing, numpy.ones((3, 3)))
    (one,) = simulate.predict(system, 6, [(1, 1, 2)], seed=1)
    (two,) = simulate.predict(mirrored, 6, [(1, 2, 1)], seed=2)
    assert one.tokens_per_s == pytest.approx(two.tokens_per_s, rel=0.005)


def test_infeasible_thresholds_are_refused():
    with pytest.raises(ConfigError, match="can deadlock"):
        simulate.predict(r2r(), 4, [(1, 1), (3, 3)])


def test_no_vectors_give_no_predictions():
    assert simulate.predict(r2r(), 4, []) == []


def test_every_feasible_vector_runs():
    vectors = [each for each in itertools.product((1, 2, 3), repeat=2) if sum(each) - 2 < 3]
    found = simulate.predict(r2r(), 3, vectors, 2000)
    assert [each.thresholds for each in found] == vectors
    assert all(each.tokens_per_s > 100 for each in found)
