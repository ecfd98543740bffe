"""Engines over random-weight models, each built once per session, in this process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.subserver.sglang_compat.driver import Driver
from tests.subserver.sglang_compat.tiny_models import TinyModel, build_model
from tokenrouter.config import ModelConfig
from tokenrouter.ipc.ports import choose_ports
from tokenrouter.schedulers.signals import Declared
from tokenrouter.subserver.sglang_compat.cpu_imports import prepare_sglang_import

if TYPE_CHECKING:
    from tokenrouter.subserver.sglang_compat.engine import SGLangEngine

Build = Callable[..., "SGLangEngine"]


@dataclass(frozen=True)
class Served:
    """An engine and the model that it serves."""

    model: TinyModel
    engine: SGLangEngine


@pytest.fixture(scope="session")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return build_model(tmp_path_factory.mktemp("qwen3"), "qwen3", seed=1)


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return build_model(tmp_path_factory.mktemp("llama"), "llama", seed=2)


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build an engine: ``build(path, signals=(), **keys of the model's entry)``."""
    prepare_sglang_import()
    from sglang.srt.distributed import parallel_state

    from tokenrouter.subserver.sglang_compat.cpu_patches import apply_cpu_patches
    from tokenrouter.subserver.sglang_compat.loading import build_engine
    from tokenrouter.subserver.sglang_compat.model_registry import register_models

    apply_cpu_patches()
    register_models(["LlamaForCausalLM", "Qwen3ForCausalLM"])

    def build_one(
        path: Path,
        nccl_port: int | None = None,
        signals: Collection[Declared] = (),
        **entry: Any,
    ) -> SGLangEngine:
        # SGLang keeps its process groups in globals and wants them unset; with one rank per
        # group nobody talks through them, so several engines can live in one process.
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        for name in ("_WORLD", "_TP", "_PP", "_MOE_EP", "_MOE_TP"):
            setattr(parallel_state, name, None)
        entry = {"name": "m", "model_path": path, "dtype": "float32"} | entry
        fixed = {"m": {"nccl": nccl_port}} if nccl_port else {}
        ports = choose_ports(tmp_path_factory.mktemp("sockets"), ["m"], fixed)
        member = ports.members[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Upstream's own, while it loads.
            return build_engine(ModelConfig(**entry), member, [0], 5, signals=signals)

    return build_one


@pytest.fixture(scope="session", params=["qwen3", "qwen3-no-radix", "llama"])
def served(request: pytest.FixtureRequest, build: Build) -> Served:
    name, _, no_radix = request.param.partition("-")
    model: TinyModel = request.getfixturevalue(name)
    engine = build(model.path, max_total_tokens=2000, disable_radix_cache=bool(no_radix))
    return Served(model, engine)


@pytest.fixture
def driver(served: Served) -> Iterator[Driver]:
    """Drives the engine like the loop; afterwards nothing may have leaked."""
    driver = Driver(served.engine)
    yield driver
    driver.release_all()
    served.engine.check_pools()


@pytest.fixture(scope="session")
def radix(qwen3: TinyModel, build: Build) -> Served:
    """An engine with a radix cache, where a test needs that one."""
    return Served(qwen3, build(qwen3.path, max_total_tokens=4000))


@pytest.fixture
def radix_driver(radix: Served) -> Iterator[Driver]:
    driver = Driver(radix.engine)
    yield driver
    driver.release_all()
    radix.engine.check_pools()
