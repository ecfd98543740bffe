"""What a configuration meets on a machine."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.configuration.folders import model_folder
from tests.configuration.qwen3 import qwen3_folder
from tokenrouter.config import load
from tokenrouter.configuration.examine import GIB, Examination, examine, longest_request
from tokenrouter.configuration.machine import Machine
from tokenrouter.configuration.shares import filled
from tokenrouter.processes.directory import socket_directory

pytestmark = pytest.mark.timeout(20)

CPU = Machine(ram=64 * GIB)
TIMED = {"name": "b", "engine": "timed", "step_ms": 1}
TWO_GPUS = Machine(ram=64 * GIB, gpus=(80 * GIB, 80 * GIB))


def pair(tmp_path: Path, machine: Machine, **large: Any) -> Examination:
    """Qwen3 0.6B and 32B, the latter with these arguments, on a machine."""
    for size in ("0.6B", "32B"):
        if not (tmp_path / f"Qwen3-{size}").exists():
            qwen3_folder(tmp_path, size)
    small = {"model_path": tmp_path / "Qwen3-0.6B", "mem_fraction_static": 0.2}
    big = {"model_path": tmp_path / "Qwen3-32B", "tp_size": 2, "mem_fraction_static": 0.7}
    config = load(None, {"port": 0, "models": {"small": small, "large": {**big, **large}}}, {})
    return examine(config, machine)


def test_a_pair_that_fits(tmp_path: Path) -> None:
    found = pair(tmp_path, TWO_GPUS)
    assert (found.problems, found.warnings) == ([], [])
    small, large = found.members
    assert (small.gpus, large.gpus) == ((0,), (0, 1))
    # What the fraction leaves beside the weights.
    assert small.pool_tokens == (int(0.2 * 80 * GIB) - 1_503_000_000) // (28 * 2 * 8 * 128 * 2)
    assert small.needs <= 0.2 * 80 * GIB < small.needs + 2**20
    assert longest_request(found.members) == (40960, "the context length of small")


def test_what_does_not_fit_is_named_with_its_size(tmp_path: Path) -> None:
    [problem] = pair(tmp_path, TWO_GPUS, mem_fraction_static=0.85).problems
    assert problem == (
        "models: mem_fraction_static of small, large on GPU 0 sum to 1.05 (0.2 + 0.85); lower them "
        "to 1 together, less what activations need"
    )
    [problem] = pair(tmp_path, TWO_GPUS, tp_size=1).problems
    assert problem.startswith("models.large: needs about 61.0 GiB on GPU 0 (weights 61.0 GiB")
    assert "of the 56.0 GiB it may take; raise mem_fraction_static or tp_size" in problem
    unknown = Machine(64 * GIB, (None, None))
    problem, *_ = pair(tmp_path, unknown, mem_fraction_static=None).problems
    assert problem.startswith("models.large.mem_fraction_static: small, large share GPU 0; say how")
    problems = pair(tmp_path, TWO_GPUS, mem_fraction_static=None, max_total_tokens=300_000).problems
    assert [each.partition(";")[0] for each in problems] == [
        "models: small, large need about 83.1 GiB on GPU 0, which has 80.0 GiB"
    ]


def test_members_that_say_nothing_share_a_gpu_by_their_needs(tmp_path: Path) -> None:
    found = pair(tmp_path, TWO_GPUS, mem_fraction_static=None)
    assert (found.problems, found.shares) == ([], {"large": 0.65})
    for size in ("0.6B", "8B"):
        if not (tmp_path / f"Qwen3-{size}").exists():
            qwen3_folder(tmp_path, size)
    models: dict[str, dict[str, Any]] = {
        "small": {"model_path": tmp_path / "Qwen3-0.6B"},
        "large": {"model_path": tmp_path / "Qwen3-8B"},
    }
    config = load(None, {"port": 0, "models": models}, {})
    machine = Machine(64 * GIB, (80 * GIB,))
    found = examine(config, machine)
    assert found.problems == []
    assert sum(found.shares.values()) == pytest.approx(0.85, abs=2e-4)
    small, large = found.members
    assert small.pool_tokens and large.pool_tokens
    assert small.pool_tokens == pytest.approx(large.pool_tokens, rel=0.001)
    served = filled(config, lambda: machine)
    assert {m.name: m.sglang["mem_fraction_static"] for m in served.models} == found.shares
    # One whose pool is said takes that, and the other the rest.
    models["large"]["max_total_tokens"] = 20000
    config = load(None, {"port": 0, "models": models}, {})
    found = examine(config, machine)
    assert found.problems == []
    small, large = found.members
    assert list(found.shares) == ["small"]
    assert small.needs + large.needs == pytest.approx(0.85 * 80 * GIB, rel=0.001)
    # On a GPU where nothing is left, nobody is given anything.
    found = examine(load(None, {"port": 0, "models": models}, {}), Machine(GIB, (8 * GIB,)))
    assert found.shares == {}
    assert found.problems


def test_a_member_alone_on_its_gpu_is_left_to_the_engine(tmp_path: Path) -> None:
    qwen3_folder(tmp_path, "0.6B")
    models = [
        {"name": f"m{gpu}", "model_path": tmp_path / "Qwen3-0.6B", "base_gpu_id": gpu}
        for gpu in range(2)
    ]
    config = load(None, {"port": 0, "models": models}, {})
    assert examine(config, TWO_GPUS).shares == {}
    assert filled(config, lambda: TWO_GPUS) is config


def test_gpus_that_are_not_there(tmp_path: Path) -> None:
    [problem] = pair(tmp_path, Machine(64 * GIB, (80 * GIB,))).problems
    assert problem.startswith("models.large.tp_size: 2 ranks need the GPUs 0, 1, and there are 1")
    found = pair(tmp_path, Machine(64 * GIB, (None, None)))
    assert found.problems == []
    assert found.warnings[0] == "models: the memory of GPU 0 is not known, nor if all fit"
    assert found.members[0].pool_tokens is None


def test_a_machine_without_gpus(tmp_path: Path) -> None:
    found = pair(tmp_path, CPU, base_gpu_id=1)
    assert found.warnings == [
        "models.large.base_gpu_id: there is no GPU, so it runs on the CPU",
    ]
    [problem] = found.problems
    assert problem.startswith("models: small, large need about ")
    assert "and the machine has 64.0 GiB" in problem
    assert pair(tmp_path, Machine(128 * GIB)).problems == []


def test_the_shortest_model_bounds_requests(tmp_path: Path) -> None:
    models = {
        "a": {"model_path": model_folder(tmp_path / "a")},
        "b": {"engine": "timed", "step_ms": 1},
        "c": {"engine": "timed", "step_ms": 1, "max_total_tokens": 100},
    }
    config = load(None, {"port": 0, "models": models}, {})
    assert examine(config, CPU).warnings == [
        "models: context lengths differ (a 512, b 32768, c 32768); a routed request may have 100 "
        "tokens, the KV pool of c"
    ]


def test_a_threshold_beyond_the_pool_that_memory_leaves(tmp_path: Path) -> None:
    folder = model_folder(
        tmp_path / "m", hidden_size=64, num_hidden_layers=2, num_attention_heads=2
    )
    models = {"m": {"model_path": folder, "threshold": 200}}
    config = load(None, {"port": 0, "models": models}, {})
    kv_token = 2 * 2 * 64 * 2
    assert examine(config, CPU).problems == []
    [problem] = examine(config, Machine(ram=8 * kv_token * 100)).problems
    assert problem.startswith("models.m.threshold: 200 visits can never wait here: its KV pool h")


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        models = {"b": {"engine": "timed", "step_ms": 1}}
        config = load(None, {"port": taken.getsockname()[1], "models": models}, {})
        [problem] = examine(config, CPU).problems
        assert problem.startswith("port: cannot listen on 127.0.0.1:")
        ports = {"b": {"nccl": taken.getsockname()[1]}}
        config = load(None, {"port": 0, "models": models, "ports": ports}, {})
        [problem] = examine(config, CPU).problems
        assert problem.startswith("ports.b.nccl: cannot listen on TCP port ")


def test_a_directory_that_others_may_enter(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    settings = {"port": 0, "socket_dir": tmp_path, "models": [TIMED]}
    [problem] = examine(load(None, settings, {}), CPU).problems
    assert problem == (
        f"socket_dir: {tmp_path} must be yours and closed to others: chmod 700 {tmp_path}"
    )
    tmp_path.chmod(0o700)
    assert examine(load(None, settings, {}), CPU).problems == []
    with socket_directory(tmp_path, ("b",)):
        [problem] = examine(load(None, settings, {}), CPU).problems
    assert problem.startswith(f"socket_dir: another deployment uses {tmp_path}")


def test_sockets_that_would_have_too_long_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/tmp/" + "d" * 90)
    config = load(None, {"port": 0, "models": {"b": {"engine": "timed", "step_ms": 1}}}, {})
    assert examine(config, CPU).problems[0].startswith("socket_dir: ")
