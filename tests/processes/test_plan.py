"""What is started, where, and whether the imports are shared."""

from __future__ import annotations

import logging
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.configuration.folders import model_folder
from tokenrouter.config import Config
from tokenrouter.errors import ConfigError
from tokenrouter.ipc.ports import choose_ports
from tokenrouter.processes import plan as planning
from tokenrouter.processes.plan import Programs, plan, uses_gpu

TIMED = {"name": "fast", "engine": "timed", "step_ms": 1}


@pytest.fixture
def entries(tmp_path: Path) -> list[dict[str, Any]]:
    """A small model, a timed one, and one of three times the size."""
    return [
        {"name": "small", "model_path": model_folder(tmp_path / "small", weights=100)},
        TIMED,
        {"name": "large", "model_path": model_folder(tmp_path / "large", weights=300)},
    ]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where a GPU would be found; there is none yet."""
    device = tmp_path / "nvidiactl"
    monkeypatch.setattr(planning, "GPU_DEVICE", device)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return device


def configured(*entries: Any) -> Config:
    """A deployment of these models."""
    return Config.model_validate({"models": entries})


def with_cores(monkeypatch: pytest.MonkeyPatch, *cores: int) -> None:
    """Pretend to run on these cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(cores))


def test_members_first_each_on_its_cores(
    entries: list[dict[str, Any]], gpu: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_cores(monkeypatch, 8, 9, 10, 11)
    config = configured(*entries)
    ports = choose_ports(tmp_path, config.names, {})
    programs = Programs(member="m:f", front_end="m:g", detokenizer="m:h", planner="m:i")
    launch = plan(config, ports, programs)
    assert [(c.name, c.entry, c.member, c.cores) for c in launch.children] == [
        ("small", "m:f", 0, (8,)),
        ("fast", "m:f", 1, ()),
        ("large", "m:f", 2, (9, 10, 11)),
        ("front-end", "m:g", None, ()),
        ("detokenizer", "m:h", None, ()),
        ("planner", "m:i", None, ()),
    ]
    assert launch.shared
    assert Config.model_validate_json(launch.config) == config


@pytest.mark.parametrize(
    ("thresholds", "planned"),
    [(["auto"], False), (["auto", "auto"], True), ([1, "auto"], True), ([1, 2], False)],
)
def test_a_planner_where_thresholds_of_several_models_are_automatic(
    thresholds: list[Any], planned: bool, tmp_path: Path
) -> None:
    entries = [{**TIMED, "name": f"m{i}", "threshold": t} for i, t in enumerate(thresholds)]
    config = configured(*entries)
    launch = plan(config, choose_ports(tmp_path, config.names, {}), Programs())
    assert ("planner" in {child.name for child in launch.children}) == planned


def test_too_few_cores_are_not_pinned_and_said_so(
    entries: list[dict[str, Any]],
    gpu: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    with_cores(monkeypatch, 3)
    assert planning.member_cores(configured(*entries)) == [[()], [()], [()]]
    assert "2 models or ranks share 1 cores: none is pinned" in caplog.text


def test_every_rank_is_a_process_with_its_own_cores(
    entries: list[dict[str, Any]], gpu: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_cores(monkeypatch, *range(7))
    entries[2]["tp_size"] = 2
    config = configured(*entries)
    programs = Programs(member="m:f", follower="m:k")
    launch = plan(config, choose_ports(tmp_path, config.names, {}), programs)
    assert [(c.name, c.entry, c.member, c.rank, c.cores) for c in launch.children[:4]] == [
        ("small", "m:f", 0, 0, (0, 1, 2)),
        ("fast", "m:f", 1, 0, ()),
        ("large", "m:f", 2, 0, (3, 4)),
        ("large#1", "m:k", 2, 1, (5, 6)),
    ]
    gpu.touch()
    launch = plan(config, choose_ports(tmp_path, config.names, {}), programs)
    assert [(c.rank, c.cores) for c in launch.children[:4]] == [(0, ()), (0, ()), (0, ()), (1, ())]


def test_imports_are_shared_unless_a_gpu_computes(
    entries: list[dict[str, Any]], gpu: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = configured(*entries)
    assert not uses_gpu(config)
    assert uses_gpu(configured({**entries[0], "device": "cuda"}))
    gpu.touch()
    assert uses_gpu(config)
    assert not uses_gpu(configured(TIMED))
    assert not uses_gpu(configured({**entries[0], "device": "cpu"}))
    launch = plan(config, choose_ports(tmp_path, config.names, {}), Programs())
    assert not launch.shared
    assert not any(child.cores for child in launch.children)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not uses_gpu(config)


def test_members_that_share_a_gpu_start_in_waves(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m")
    layouts: list[dict[str, Any]] = [
        {"tp_size": 2},  # GPUs 0 and 1
        {"base_gpu_id": 2},
        {"base_gpu_id": 1},
        {"device": "cpu"},
        {"tp_size": 3},  # 0, 1 and 2
    ]
    entries = [{"name": f"m{i}", "model_path": folder, **each} for i, each in enumerate(layouts)]
    assert planning.member_waves(configured(*entries, TIMED)) == [0, 0, 1, 0, 2, 0]


def test_ranks_need_gpus_that_are_there(
    gpu: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu.touch()
    shape = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = configured(
        {"name": "m", "model_path": model_folder(tmp_path / "m", **shape), "tp_size": 2}, TIMED
    )
    ports = choose_ports(tmp_path, config.names, {})
    for count, fits in ((2, True), (1, False), (0, True)):  # 0: the driver does not say
        monkeypatch.setattr(planning, "visible_gpus", lambda visible, count=count: count)
        with nullcontext() if fits else pytest.raises(ConfigError, match="need the GPUs 0, 1, and"):
            assert not plan(config, ports, Programs()).shared
