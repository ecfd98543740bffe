"""Drafts, checks, cuts and scratch reads on SGLang: served as the plain loop writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.integration.deployments import demo, serve_all
from tests.integration.reference import Answer, Model, routed_loop
from tests.integration.server import Server
from tests.integration.test_exactness import MUTANTS, assert_equal
from tests.subserver.algorithms import HERE
from tokenrouter.schedulers.base import Request, RoutingScheduler, Step

COUNT = 40
NAMES = ("small", "large")
DRAFTY: dict[str, Any] = {"algorithm_args": {"limit": COUNT}}


def distances(scheduler: RoutingScheduler, request: Request, step: Step) -> Iterable[float]:
    return (abs(check.probability - 0.4) for check in step.checks)


@pytest.fixture(scope="module")
def expected(demo_models: list[Model], problems: list[list[int]]) -> list[Answer]:
    answers = [
        routed_loop(
            demo_models, prompt, COUNT, f"{HERE}:Drafty",
            args=DRAFTY["algorithm_args"], distances=distances,
        )
        for prompt in problems
    ]  # fmt: skip
    assert sum(answer.taken_back for answer in answers) > 50
    return answers


@pytest.mark.parametrize(
    "model",
    [{}, {"chunked_prefill_size": 16, "max_total_tokens": 400}],
    ids=["whole", "chunked-evicting"],
)
def test_demo_pair(model: dict[str, Any], expected: list[Answer], problems: list[list[int]]):
    with Server(demo(f"{HERE}:Drafty", None, (2, 3), model=model, **DRAFTY)) as server:
        for _ in range(2):  # the second time from the prefix cache
            assert_equal(serve_all(server, problems, COUNT), expected, NAMES, least=20)
            server.assert_clean()
        assert (sum(state["evictions"] for state in server.states()) > 0) == bool(model)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ["zeroed_kv", "repeated_token"])
def test_corrupted_drafts_are_noticed(
    mutant: str, expected: list[Answer], problems: list[list[int]]
):
    config = demo(f"{HERE}:Drafty", None, (2, 3), **DRAFTY)
    with Server(config, f"{MUTANTS}:{mutant}") as server:
        served = serve_all(server, problems, COUNT)
    with pytest.raises(AssertionError):
        assert_equal(served, expected, NAMES)
