import random

import numpy
import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model import systems
from tokenrouter.throughput_model.chain import exact
from tokenrouter.throughput_model.count_simulation import simulate, tapes
from tokenrouter.throughput_model.parameters import Latency, Model, System
from tokenrouter.throughput_model.search import search
from tokenrouter.throughput_model.search.space import space


def r2r(p: float = 0.35, small: Latency | None = None, large: Latency | None = None) -> System:
    models = (
        Model("small", small or Latency(base=6.0)),
        Model("large", large or Latency(base=27.9)),
    )
    return systems.r2r(models, p)


def three() -> System:
    models = (
        Model("a", Latency(base=2.0, per_request=0.5)),
        Model("b", Latency(base=5.0)),
        Model("c", Latency(base=9.0), 3),
    )
    routing = numpy.array([[0.6, 0.3, 0.1], [0.8, 0.0, 0.2], [1.0, 0.0, 0.0]])
    return System(models, routing, numpy.ones((3, 3)))


def exhaustive(system: System, requests: int) -> dict[tuple[int, ...], float]:
    return {
        each: exact.predict(system, requests, each).tokens_per_s
        for each in search.feasible(system, requests)
    }


def test_small_systems_are_searched_whole_and_exactly():
    found = search.best(r2r(), 4)
    assert found.best.thresholds == (1, 3)
    assert {each.thresholds for each in found.tried} == set(search.feasible(r2r(), 4))
    assert all(each.method == "exact" for each in found.tried)
    assert found.tried[0] == found.best


@pytest.mark.parametrize(
    ("system", "requests"),
    [(r2r(), 8), (r2r(0.1), 8), (three(), 3), (r2r(large=Latency(base=20.0, per_request=1.0)), 6)],
)
def test_the_best_of_all_exact_predictions_is_found(system, requests):
    rates = exhaustive(system, requests)
    best = search.best(system, requests).best
    assert rates[best.thresholds] >= 0.999 * max(rates.values())
    assert best.tokens_per_s == pytest.approx(rates[best.thresholds], rel=0.003)


def test_thresholds_of_many_models_are_found_among_thousands():
    system = three()
    found = search.best(system, 64)
    chance = random.Random(0)
    others = [space(system, 64).clip(chance.choices(range(1, 40), k=3)) for _ in range(300)]
    rates = [each.tokens_per_s for each in simulate.predict(system, 64, others, 20_000, seed=9)]
    assert found.best.tokens_per_s > 0.998 * max(rates)
    assert found.best.tokens_per_s > 1.01 * float(numpy.median(rates))


def test_thresholds_that_only_suit_requests_in_step_are_not_chosen():
    """At 256 requests (63, 20) is best if all begin together, and 17 % slower if they scatter."""
    models = (Model("a", Latency(base=58.41)), Model("b", Latency(base=48.01)))
    system = System(models, numpy.array([[0.037, 0.963], [0.83, 0.17]]), numpy.ones((2, 2)))
    crowd = simulate.Simulation(system, 256, tapes.tapes_for(system, 256, 20_000, 5))
    best = search.best(system, 256).best.thresholds
    in_step = crowd.run([best, (66, 20)], 20_000).tokens_per_s
    scattered = crowd.run([best, (66, 20)], 20_000, [128, 128]).tokens_per_s
    assert in_step[1] > 1.1 * scattered[1]
    assert in_step[0] == pytest.approx(scattered[0], rel=0.01)
    assert in_step[0] == pytest.approx(in_step[1], rel=0.005)


def test_fixed_thresholds_stay():
    found = search.best(r2r(), 16, fixed={1: 3})
    assert {each.thresholds[1] for each in found.tried} == {3}
    assert len({each.thresholds[0] for each in found.tried}) > 5
    with pytest.raises(ConfigError, match="deadlock"):
        search.best(r2r(), 3, fixed={0: 3, 1: 2})


def test_a_gain_within_the_noise_or_the_margin_changes_nothing():
    """A step that takes as long for each request gains nothing by waiting."""
    alone = r2r(small=Latency(per_request=1.0), large=Latency(per_request=4.0))
    assert search.best(alone, 12).best.thresholds == (1, 1)
    assert search.best(r2r(), 4, margin=0.10).best.thresholds == (1, 3)  # gains 11 %
    assert search.best(r2r(), 4, margin=0.12).best.thresholds == (1, 1)


def test_a_seed_gives_the_same_answer():
    first, again, other = (search.best(r2r(), 24, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
