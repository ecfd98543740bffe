"""Members of two tensor-parallel ranks (gloo, on a CPU): exact, equal on all ranks, and clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.deployments import TAU, cascade, demo, serve_all
from tests.integration.reference import Model, routed_loop
from tests.integration.server import Server
from tests.integration.test_exactness import COUNT, assert_equal


def test_demo_pair(demo_models: list[Model], problems: list[list[int]]) -> None:
    """Entropy between members of two ranks each, with eviction and prompts in chunks."""
    model = {"chunked_prefill_size": 32, "max_total_tokens": 700, "tp_size": 2}
    config = demo("entropy", TAU, (2, 24), model=model)
    expected = [routed_loop(demo_models, prompt, COUNT, "entropy", TAU) for prompt in problems]
    with Server(config) as server:
        for _ in range(2):  # the second time from the prefix cache
            assert_equal(serve_all(server, problems, COUNT), expected, ("small", "large"), least=20)
            server.assert_clean()
        assert sum(state["evictions"] for state in server.states()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [(2, 1, 2), (1, 2, 2)])
def test_llama_trio(
    ranks: tuple[int, ...], trio: dict[str, Path], trio_models: list[Model], texts: list[list[int]]
) -> None:
    config = cascade(trio, (1, 2, 3), prefill="eager", model={"chunked_prefill_size": 16})
    for model, tp_size in zip(config["models"], ranks, strict=True):
        model["tp_size"] = tp_size
    expected = [routed_loop(trio_models, prompt, COUNT, "cascade", 0.3) for prompt in texts]
    with Server(config) as server:
        for _ in range(2):
            assert_equal(serve_all(server, texts, COUNT), expected, tuple(trio), least=50)
            server.assert_clean()
