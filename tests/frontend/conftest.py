"""One deployment for all tests of the HTTP interface: starting it costs seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.frontend.fakes import Deployment, deployment, make_config, make_roster, model_folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder."""
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def running(folder: Path) -> Iterator[Deployment]:
    """The deployment itself; tests use `server`."""
    algorithms = {
        "careful": {"algorithm": "entropy", "router_threshold": 0.1},
        "picky": {"algorithm": "tests.frontend.test_algorithms:Picky"},
    }
    config = make_config(folder, algorithms=algorithms)
    with deployment(config, make_roster()) as running:
        yield running


@pytest.fixture
def server(running: Deployment) -> Deployment:
    """The deployment, its members having received nothing yet."""
    running.members.clear()
    return running


@pytest.fixture
def client(server: Deployment) -> Iterator[openai.OpenAI]:
    """The official client."""
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=20
    ) as client:
        yield client
