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
NAMES = ("small", "large")
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


def twice(
    server: Server,
    prompts: list[list[int]],
    expected: list[Answer],
    names: Sequence[str],
    least: int,
) -> int:
    """Served right, the second time from the prefix cache; how often a visit was evicted."""
    before = evictions(server)
    for _ in range(2):
        assert_equal(serve_all(server, prompts, COUNT), expected, names, least=least)
        server.assert_clean()
    return evictions(server) - before


def evictions(server: Server) -> int:
    return sum(state["evictions"] for state in server.states())


# Thresholds, prefill, chunking, radix cache and pool sizes.


def test_demo_pair_lazy(
    demo_server: Server, demo_models: list[Model], problems: list[list[int]]
) -> None:
    expected = [routed_loop(demo_models, prompt, COUNT, "entropy", TAU) for prompt in problems]
    assert demo_server.client.post("/flush_cache").status_code == 200
    assert twice(demo_server, problems, expected, NAMES, least=20) == 0


def test_demo_pair_random_eager_chunked(
    demo_models: list[Model], problems: list[list[int]]
) -> None:
    model = {"chunked_prefill_size": 16, "disable_radix_cache": True}
    config = demo("random", 0.35, (3, 4), prefill="eager", model=model)
    expected = [routed_loop(demo_models, prompt, COUNT, "random", 0.35) for prompt in problems]
    with Server(config) as server:
        assert twice(server, problems, expected, NAMES, least=20) == 0


def test_demo_pair_evicting(
    evicting_server: Server, demo_models: list[Model], problems: list[list[int]]
) -> None:
    expected = [routed_loop(demo_models, prompt, COUNT, "entropy", TAU) for prompt in problems]
    assert evicting_server.client.post("/flush_cache").status_code == 200
    assert twice(evicting_server, problems, expected, NAMES, least=20) > 0


def test_llama_trio_lazy(
    trio_server: Server,
    trio: dict[str, Path],
    trio_models: list[Model],
    texts: list[list[int]],
) -> None:
    expected = [routed_loop(trio_models, prompt, COUNT, "cascade", 0.3) for prompt in texts]
    assert trio_server.client.post("/flush_cache").status_code == 200
    assert twice(trio_server, texts, expected, tuple(trio), least=50) == 0


def test_llama_trio_eager_evicting(
    trio: dict[str, Path], trio_models: list[Model], texts: list[list[int]]
) -> None:
    model = {"max_total_tokens": 400, "disable_radix_cache": True}
    config = cascade(trio, (24, 1, 5), prefill="eager", model=model)
    expected = [routed_loop(trio_models, prompt, COUNT, "cascade", 0.3) for prompt in texts]
    with Server(config) as server:
        assert twice(server, texts, expected, tuple(trio), least=50) > 0


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
def test_a_corrupted_pair_is_noticed(
    mutant: str, demo_models: list[Model], problems: list[list[int]]
) -> None:
    config = demo("entropy", TAU, (1, 3), served_name="demo")
    with Server(config, f"{MUTANTS}:{mutant}") as server:
        for algorithm in ("entropy", "random"):
            model = f"demo:{algorithm}@{TAU}"
            assert server.client.post("/flush_cache").status_code == 200
            served = serve_all(server, problems, COUNT, model=model)
            expected = [
                routed_loop(demo_models, prompt, COUNT, algorithm, TAU) for prompt in problems
            ]
            with pytest.raises(AssertionError):
                assert_equal(served, expected, NAMES)
