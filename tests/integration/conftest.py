"""Models and prompts shared by the integration tests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from tests.integration.deployments import ALGORITHMS, TAU, cascade, demo
from tests.integration.models import DEMO, build_trio
from tests.integration.reference import Model
from tests.integration.server import Server
from tokenrouter.demo.task import draw_problem


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(DEMO / "small")


@pytest.fixture(scope="session")
def demo_models() -> list[Model]:
    return [Model(DEMO / "small"), Model(DEMO / "large")]


@pytest.fixture(scope="session")
def demo_server() -> Iterator[Server]:
    """The demo pair under `entropy` at `TAU`, with `ALGORITHMS`; every test leaves it clean."""
    config = demo("entropy", TAU, (1, 3), served_name="demo", algorithms=ALGORITHMS)
    config["models"][0]["tool_call_parser"] = "qwen25"
    with Server(config) as server:
        yield server


@pytest.fixture(scope="session")
def evicting_server() -> Iterator[Server]:
    """The demo server's algorithms, with prompts in chunks and hardly any memory."""
    model = {"chunked_prefill_size": 16, "max_total_tokens": 300}
    config = demo("entropy", TAU, (2, 24), model=model, served_name="demo", algorithms=ALGORITHMS)
    with Server(config) as server:
        yield server


@pytest.fixture(scope="session")
def trio(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build_trio(tmp_path_factory.mktemp("trio"))


@pytest.fixture(scope="session")
def trio_models(trio: dict[str, Path]) -> list[Model]:
    return [Model(folder) for folder in trio.values()]


@pytest.fixture(scope="session")
def trio_server(trio: dict[str, Path]) -> Iterator[Server]:
    """The Llama trio under `cascade`, with prompts in chunks; every test leaves it clean."""
    with Server(cascade(trio, (1, 2, 3), model={"chunked_prefill_size": 16})) as server:
        yield server


@pytest.fixture(scope="session")
def problems(tokenizer: Any) -> list[list[int]]:
    """Token ids of 24 problems of the demo's task, as the chat template writes them."""
    rng = random.Random(20)
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": draw_problem(rng).question}], add_generation_prompt=True
        )
        for _ in range(24)
    ]


@pytest.fixture(scope="session")
def texts() -> list[list[int]]:
    """24 prompts of arbitrary bytes, 3 to 90 tokens; some share a prefix."""
    rng = random.Random(21)
    prompts = [[rng.randrange(256) for _ in range(rng.randrange(3, 60))] for _ in range(16)]
    shared = [rng.randrange(256) for _ in range(40)]
    return prompts + [shared + [rng.randrange(256) for _ in range(9 * i + 1)] for i in range(8)]
