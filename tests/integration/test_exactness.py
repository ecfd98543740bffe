"""Served tokens equal the plain token-by-token loop, whatever the batching and the memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.deployments import TAU, cascade, demo, serve_all
from tests.integration.reference import Answer, Model, routed_loop
from tests.integration.server import Server

COUNT = 40
MUTANTS = "tests.integration.mutants"


def assert_equal(
    served: Sequence[Any], expected: Sequence[Answer], names: Sequence[str], least: int = 1
) -> None:
    """Tokens, writers and hand-overs agree, on answers where float noise decides nothing.

    ``least``: tokens every member must have written over all answers.
    """
    honest = [i for i, answer in enumerate(expected) if answer.honest]
    assert len(honest) >= 0.75 * len(expected), "choose other prompts: margins are too small"
    for i in honest:
        routing = served[i]["meta_info"]["routing"]
        assert len(set(expected[i].tokens[:24])) >= 8
        assert served[i]["output_ids"] == expected[i].tokens, i
        assert routing["token_models"] == [names[m] for m in expected[i].writers], i
        assert routing["hand_overs"] == expected[i].hand_overs, i
    for member in range(len(names)):
        assert sum(expected[i].writers.count(member) for i in honest) >= least


# Thresholds, prefill, chunking, radix cache and pool sizes, each in a deployment of its own.
DEMO_DEPLOYMENTS = {
    "entropy-lazy": demo("entropy", TAU, (1, 3)),
    "random-eager-chunked": demo(
        "random", 0.35, (3, 4), prefill="eager",
        model={"chunked_prefill_size": 16, "disable_radix_cache": True},
    ),
    "entropy-evicting": demo(
        "entropy", TAU, (2, 24),
        model={"chunked_prefill_size": 32, "max_total_tokens": 300},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEMO_DEPLOYMENTS)
def test_demo_pair(name: str, demo_models: list[Model], problems: list[list[int]]) -> None:
    config = DEMO_DEPLOYMENTS[name]
    algorithm, tau = config["algorithm"], config["router_threshold"]
    expected = [routed_loop(demo_models, prompt, COUNT, algorithm, tau) for prompt in problems]
    with Server(config) as server:
        for _ in range(2):  # the second time from the prefix cache
            assert_equal(serve_all(server, problems, COUNT), expected, ("small", "large"), least=20)
            server.assert_clean()
        evictions = sum(state["evictions"] for state in server.states())
        assert (evictions > 0) == (name == "entropy-evicting")


TRIO_DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "lazy": {"thresholds": (1, 2, 3), "model": {"chunked_prefill_size": 16}},
    "eager-evicting": {
        "thresholds": (24, 1, 5),
        "prefill": "eager",
        "model": {"max_total_tokens": 400, "disable_radix_cache": True},
    },
}


@pytest.mark.parametrize("name", TRIO_DEPLOYMENTS)
def test_llama_trio(
    name: str, trio: dict[str, Path], trio_models: list[Model], texts: list[list[int]]
) -> None:
    options = dict(TRIO_DEPLOYMENTS[name])
    config = cascade(trio, options.pop("thresholds"), **options)
    expected = [routed_loop(trio_models, prompt, COUNT, "cascade", 0.3) for prompt in texts]
    with Server(config) as server:
        for _ in range(2):
            assert_equal(serve_all(server, texts, COUNT), expected, tuple(trio), least=50)
            server.assert_clean()
        evictions = sum(state["evictions"] for state in server.states())
        assert (evictions > 0) == (name == "eager-evicting")


@pytest.mark.parametrize("mutant", ["zeroed_kv", "shifted_position", "repeated_token"])
def test_a_corrupted_trio_is_noticed(
    mutant: str, trio: dict[str, Path], trio_models: list[Model], texts: list[list[int]]
) -> None:
    expected = [routed_loop(trio_models, prompt, COUNT, "cascade", 0.3) for prompt in texts]
    with Server(cascade(trio, (1, 2, 3)), f"{MUTANTS}:{mutant}") as server:
        served = serve_all(server, texts, COUNT)
    with pytest.raises(AssertionError):
        assert_equal(served, expected, tuple(trio))


@pytest.mark.parametrize("mutant", ["zeroed_kv", "repeated_token"])
@pytest.mark.parametrize("algorithm", ["entropy", "random"])
def test_a_corrupted_pair_is_noticed(
    mutant: str, algorithm: str, demo_models: list[Model], problems: list[list[int]]
) -> None:
    expected = [routed_loop(demo_models, prompt, COUNT, algorithm, TAU) for prompt in problems]
    with Server(demo(algorithm, TAU, (1, 3)), f"{MUTANTS}:{mutant}") as server:
        served = serve_all(server, problems, COUNT)
    with pytest.raises(AssertionError):
        assert_equal(served, expected, ("small", "large"))
