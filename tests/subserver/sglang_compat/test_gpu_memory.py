"""Shares of a GPU that several members use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tokenrouter.subserver.sglang_compat.cpu_imports import prepare_sglang_import

pytestmark = pytest.mark.timeout(60)


def kv_gib(fraction: float, free: float, weights: float) -> float:
    """What SGLang leaves for KV cache: `ModelRunner.profile_max_num_token`."""
    return (free - weights) - free * (1 - fraction)


def test_every_member_gets_its_share_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_sglang_import()
    from tokenrouter.subserver.sglang_compat import gpu_memory

    whole, free, shares = 80.0, 79.0, []
    for fraction, weights in ((0.2, 1.4), (0.65, 30.5)):
        used = gpu_memory.fraction_of_free(fraction, whole, free)
        shares.append(weights + kv_gib(used, free, weights))
        free -= shares[-1]
    assert shares == pytest.approx([0.2 * whole, 0.65 * whole])
    assert gpu_memory.fraction_of_free(0.9, whole, 40.0) == 1.0


def test_sglang_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_sglang_import()
    from tokenrouter.subserver.sglang_compat import gpu_memory

    seen: list[Any] = []

    class Runner:
        gpu_id, mem_fraction_static = 1, 0.5

        def profile_max_num_token(self, free: float) -> int:
            seen.append((self.mem_fraction_static, free))
            return 7

    def properties(gpu: int) -> Any:
        assert gpu == 1
        return SimpleNamespace(total_memory=80 * gpu_memory.GIB)

    monkeypatch.setattr(gpu_memory, "ModelRunner", Runner)
    monkeypatch.setattr(gpu_memory.torch.cuda, "get_device_properties", properties)
    gpu_memory.count_fractions_of_whole_gpus()
    runner = Runner()
    assert runner.profile_max_num_token(64.0) == 7
    assert seen == [(0.625, 64.0)]
    assert runner.mem_fraction_static == 0.5


def test_it_is_there_to_be_told() -> None:
    prepare_sglang_import()
    from sglang.srt.model_executor.model_runner import ModelRunner

    assert ModelRunner.profile_max_num_token.__code__.co_varnames[:2] == (
        "self",
        "total_gpu_memory",
    )
