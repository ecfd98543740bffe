import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model import evaluate, systems
from tokenrouter.throughput_model.chain import exact
from tokenrouter.throughput_model.count_simulation import simulate
from tokenrouter.throughput_model.parameters import Latency, Model, System


def r2r() -> System:
    models = (Model("small", Latency(base=6.0)), Model("large", Latency(base=27.9)))
    return systems.r2r(models, 0.35)


def test_a_small_chain_is_solved():
    assert evaluate.predict(r2r(), 3, (1, 2)) == exact.predict(r2r(), 3, (1, 2))


def test_a_large_one_is_simulated():
    found = evaluate.predict(r2r(), 12, (1, 2), max_states=500, events=20_000, seed=4)
    assert found.method == "simulated"
    assert [found] == simulate.predict(r2r(), 12, [(1, 2)], events=20_000, seed=4)


def test_infeasible_thresholds_are_refused_either_way():
    for requests in (3, 300):
        with pytest.raises(ConfigError, match="deadlock"):
            evaluate.predict(r2r(), requests, (requests, 2))
