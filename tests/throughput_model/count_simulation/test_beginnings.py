"""Vectors that are fast only while requests move in step are told so."""

from __future__ import annotations

import numpy
import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model import evaluate
from tokenrouter.throughput_model.count_simulation import simulate
from tokenrouter.throughput_model.count_simulation.beginnings import robust
from tokenrouter.throughput_model.parameters import Latency, Model, System
from tokenrouter.throughput_model.planning.parameter_file import Parameters
from tokenrouter.throughput_model.planning.planning import plan
from tokenrouter.throughput_model.search import search

IN_STEP, EDGE, ALWAYS = (73, 17), (102, 17), (116, 19)


def bistable() -> System:
    """256 of its requests write 4447 tokens/s with both vectors, or 3617 if `IN_STEP` falls.

    With `EDGE` it takes seconds to catch up."""
    models = (Model("a", Latency(base=58.41)), Model("b", Latency(base=48.01)))
    return System(models, numpy.array([[0.037, 0.963], [0.83, 0.17]]), numpy.ones((2, 2)))


def test_a_vector_is_worth_what_it_gives_from_the_worse_beginning() -> None:
    together = simulate.predict(bistable(), 256, [IN_STEP, ALWAYS])
    assert [each.tokens_per_s for each in together] == pytest.approx([4447, 4447], rel=0.002)
    behind, same = robust(bistable(), 256, [IN_STEP, ALWAYS])
    assert behind.tokens_per_s == pytest.approx(3617, rel=0.005)
    assert behind.thresholds == IN_STEP
    assert same == together[1]
    assert evaluate.predict(bistable(), 256, IN_STEP) == behind


def test_a_search_and_a_plan_take_none_that_falls_behind() -> None:
    found = search.best(bistable(), 256)
    fallen = {each.thresholds: each.tokens_per_s for each in found.tried}
    [outlook] = plan(
        Parameters(system=bistable(), concurrency=(256,), thresholds=(IN_STEP, EDGE, ALWAYS)),
        lambda share, what: None,
    )
    assert outlook.best.thresholds == ALWAYS
    assert [row.thresholds for row in outlook.rows] == [ALWAYS, EDGE, IN_STEP]
    vectors = [*fallen]
    again = robust(bistable(), 256, vectors, 20_000, seed=5)
    assert [each.tokens_per_s for each in again] == pytest.approx([*fallen.values()], rel=0.02)


def test_infeasible_vectors_are_refused_and_none_give_none() -> None:
    with pytest.raises(ConfigError, match="deadlock"):
        robust(bistable(), 4, [(3, 3)])
    assert robust(bistable(), 4, []) == []
