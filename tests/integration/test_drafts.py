"""Drafts, checks, cuts and scratch reads on SGLang: served as the plain loop writes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.integration.deployments import DRAFTY, demo, serve_all
from tests.integration.reference import Answer, Model, routed_loop
from tests.integration.server import Server
from tests.integration.test_exactness import MUTANTS, NAMES, assert_equal, evictions
from tokenrouter.schedulers.base import Request, RoutingScheduler, Step

COUNT = 40


def distances(scheduler: RoutingScheduler, request: Request, step: Step) -> Iterable[float]:
    return (abs(check.probability - 0.4) for check in step.checks)


@pytest.fixture(scope="module")
def expected(demo_models: list[Model], problems: list[list[int]]) -> list[Answer]:
    answers = [
        routed_loop(
            demo_models, prompt, COUNT, DRAFTY["algorithm"],
            args=DRAFTY["algorithm_args"], distances=distances,
        )
        for prompt in problems
    ]  # fmt: skip
    assert sum(answer.taken_back for answer in answers) > 50
    return answers


def serves(server: Server, expected: list[Answer], problems: list[list[int]]) -> int:
    """Twice, the second time from the prefix cache; how often a visit was evicted."""
    before = evictions(server)
    assert server.client.post("/flush_cache").status_code == 200
    for _ in range(2):
        served = serve_all(server, problems, COUNT, model="demo:drafty")
        assert_equal(served, expected, NAMES, least=20)
        server.assert_clean()
    return evictions(server) - before


def test_demo_pair(demo_server: Server, expected: list[Answer], problems: list[list[int]]) -> None:
    assert serves(demo_server, expected, problems) == 0


def test_demo_pair_chunked_and_evicting(
    evicting_server: Server, expected: list[Answer], problems: list[list[int]]
) -> None:
    assert serves(evicting_server, expected, problems) > 0


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ["zeroed_kv", "repeated_token"])
def test_corrupted_drafts_are_noticed(
    mutant: str, expected: list[Answer], problems: list[list[int]]
):
    config = {**demo("entropy", None, (2, 3)), **DRAFTY}
    with Server(config, f"{MUTANTS}:{mutant}") as server:
        served = serve_all(server, problems, COUNT)
    with pytest.raises(AssertionError):
        assert_equal(served, expected, NAMES)
