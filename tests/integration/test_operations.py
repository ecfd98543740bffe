"""Flushing, weights and profiles of a running demo pair, one answer per member."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.integration.deployments import TAU, serve_all
from tests.integration.models import DEMO
from tests.integration.reference import Model, routed_loop
from tests.integration.server import Server

OLD, NEW = str(DEMO / "small"), "new"


@pytest.fixture
def other_weights(tmp_path: Path) -> Path:
    """The small model with its layers' outputs weakened."""
    folder = tmp_path / NEW
    shutil.copytree(DEMO / "small", folder)
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith("down_proj.weight")]:
        tensors[name] = tensors[name] * 0.3
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture
def server(demo_server: Server) -> Iterator[Server]:
    """The demo server; it gets its own weights back."""
    yield demo_server
    update(demo_server, OLD)


def update(server: Server, folder: Any) -> Any:
    body = {"member": "small", "model_path": str(folder)}
    return server.client.post("/update_weights_from_disk", json=body)


def test_a_flush_forgets_every_prefix(demo_server: Server, problems: list[list[int]]) -> None:
    def cached() -> int:
        (answer,) = serve_all(demo_server, problems[:1], 8)
        return int(answer["meta_info"]["cached_tokens"])

    cached()
    assert cached() == len(problems[0]) - 1
    answer = demo_server.client.post("/flush_cache")
    assert (answer.status_code, set(answer.json()["members"])) == (200, {"small", "large"})
    assert cached() == 0
    demo_server.assert_clean()


def test_new_weights_write_what_their_model_writes(
    server: Server, other_weights: Path, demo_models: list[Model], problems: list[list[int]]
) -> None:
    def served() -> list[Any]:
        return [answer["output_ids"] for answer in serve_all(server, problems[:4], 40)]

    def wanted(models: list[Model]) -> list[Any]:
        return [routed_loop(models, prompt, 40, "entropy", TAU).tokens for prompt in problems[:4]]

    before = wanted(demo_models)
    assert served() == before
    assert update(server, other_weights).status_code == 200
    changed = wanted([Model(other_weights), demo_models[1]])
    assert changed != before
    assert served() == changed
    assert update(server, OLD).status_code == 200
    assert served() == before
    server.assert_clean()


@pytest.mark.parametrize("trouble", ["no folder", "cut off", "other shapes", "no weights"])
def test_weights_that_cannot_be_loaded_change_nothing(
    server: Server,
    other_weights: Path,
    demo_models: list[Model],
    problems: list[list[int]],
    trouble: str,
) -> None:
    file = other_weights / "model.safetensors"
    match trouble:
        case "no folder":
            other_weights = other_weights / "nothing"
        case "cut off":
            file.write_bytes(file.read_bytes()[:-1000])
        case "other shapes":
            shutil.copy(DEMO / "large" / "model.safetensors", file)
        case "no weights":
            file.unlink()
    answer = update(server, other_weights)
    assert answer.status_code == 400, answer.text
    assert "small: " in answer.json()["error"]["message"]
    (kept,) = serve_all(server, problems[:1], 40)
    assert kept["output_ids"] == routed_loop(demo_models, problems[0], 40, "entropy", TAU).tokens
    server.assert_clean()


def test_a_profile_of_every_member(
    demo_server: Server, problems: list[list[int]], tmp_path: Path
) -> None:
    body = {"output_dir": str(tmp_path), "with_stack": False}
    assert demo_server.client.post("/start_profile", json=body).status_code == 200
    again = demo_server.client.post("/start_profile", json=body)
    assert again.status_code == 400
    assert "already in progress" in again.json()["error"]["message"]
    for model in ("demo/small", "demo/large"):
        sampling = {"max_new_tokens": 8, "temperature": 0}
        demo_server.generate(input_ids=problems[0], model=model, sampling_params=sampling)
    assert demo_server.client.post("/stop_profile").status_code == 200
    names = sorted(file.name.split("-")[1] for file in tmp_path.iterdir())
    assert names == ["large", "small"]
    assert all(file.stat().st_size > 1000 for file in tmp_path.iterdir())
    assert demo_server.client.post("/stop_profile").status_code == 400
    assert "SyncActivityProfiler" not in demo_server.log.read_text()  # PyTorch's tracer is quiet
    demo_server.assert_clean()


def test_a_token_of_every_member_proves_its_health(demo_server: Server) -> None:
    assert demo_server.client.get("/health_generate").json() == {"status": "ok"}
    demo_server.assert_clean()
