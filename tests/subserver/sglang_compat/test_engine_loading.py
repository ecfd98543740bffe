"""From a model's configuration to SGLang's arguments, and what the engine says of itself."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.subserver.sglang_compat.conftest import Build, Served
from tests.subserver.sglang_compat.tiny_models import EOS, VOCABULARY, TinyModel, save_tokenizer
from tokenrouter.config import ModelConfig
from tokenrouter.errors import ConfigError
from tokenrouter.ipc.ports import MemberPorts


def arguments(model: TinyModel, build: Build, seed: int = 5, **entry: Any) -> Any:
    from tokenrouter.subserver.sglang_compat.loading import server_arguments

    return server_arguments(ModelConfig(name="m", model_path=model.path, **entry), seed)


def test_defaults_on_a_cpu(qwen3: TinyModel, build: Build) -> None:
    made = arguments(qwen3, build)
    assert made.device == "cpu"
    assert made.attention_backend == "torch_native"
    assert made.sampling_backend == "pytorch"
    assert made.disable_cuda_graph and made.disable_overlap_schedule
    assert made.page_size == 1
    assert made.max_total_tokens == 32768
    assert made.max_running_requests == 512
    assert made.chunked_prefill_size == 512
    assert made.random_seed == 5


def test_every_key_arrives_under_its_name(qwen3: TinyModel, build: Build) -> None:
    made = arguments(
        qwen3,
        build,
        max_total_tokens=777,
        max_batch=600,
        context_length=300,
        dtype="float32",
        disable_radix_cache=True,
        mem_fraction_static=0.5,
        triton_attention_num_kv_splits=3,
    )
    assert made.max_total_tokens == 777
    assert made.max_running_requests == 600
    assert made.context_length == 300
    assert made.dtype == "float32"
    assert made.disable_radix_cache
    assert made.mem_fraction_static == 0.5
    assert made.triton_attention_num_kv_splits == 3


def test_own_choice_beats_the_default(qwen3: TinyModel, build: Build) -> None:
    assert arguments(qwen3, build, max_running_requests=7).max_running_requests == 7


@pytest.mark.parametrize("seed", [-1, 2**63 - 1])
def test_any_seed_of_the_configuration(qwen3: TinyModel, build: Build, seed: int) -> None:
    assert 0 <= arguments(qwen3, build, seed=seed).random_seed < 2**32


def test_the_pool_fits_the_memory(
    qwen3: TinyModel, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 3 layers, keys and values of 2 heads of 16 float32: 768 bytes a token.
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=8 * 768 * 1000))
    assert arguments(qwen3, build, dtype="float32").max_total_tokens == 1000
    assert arguments(qwen3, build, dtype="bfloat16").max_total_tokens == 2000


def test_paged_attention_is_refused(qwen3: TinyModel, build: Build) -> None:
    with pytest.raises(ConfigError, match=r"models\.m\.attention_backend: .* pages of 64 tokens"):
        arguments(qwen3, build, attention_backend="flashmla")


def test_a_port_in_use(qwen3: TinyModel, build: Build) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"ports\.m\.nccl: cannot listen on TCP port {port}"):
            build(qwen3.path, nccl_port=port)


def test_what_an_engine_says_of_itself(served: Served) -> None:
    engine = served.engine
    assert engine.pool_tokens == 2000
    assert engine.max_visits == 512
    assert engine.context_length == 512
    assert engine.vocab_size == VOCABULARY
    assert engine.eos_ids == (EOS,)
    assert engine.vocabulary.decode([5, 6, EOS]) == f"w5 w6 w{EOS}"


def test_queues_stay_empty(served: Served) -> None:
    scheduler = served.engine.scheduler
    assert not scheduler.waiting_queue and scheduler.running_batch.is_empty()
    assert scheduler.cur_batch is None


def test_eos_ids_of_all_kinds(qwen3: TinyModel, build: Build, tmp_path: Path) -> None:
    from tokenrouter.subserver.sglang_compat.vocabulary import eos_ids

    config = SimpleNamespace(hf_eos_token_id={9, 3})
    assert eos_ids(
        config, SimpleNamespace(eos_token_id=7, additional_stop_token_ids={4})
    ) == (3, 4, 7, 9)  # fmt: skip
    no_ids = SimpleNamespace(eos_token_id=None, additional_stop_token_ids=None)
    assert eos_ids(SimpleNamespace(hf_eos_token_id=None), no_ids) == ()
    folder = shutil.copytree(qwen3.path, tmp_path / "model")
    generation = folder / "generation_config.json"
    generation.write_text(json.dumps({"eos_token_id": [1, 11, 12]}))
    assert build(folder, max_total_tokens=100).eos_ids == (1, 11, 12)


def test_fingerprints_tell_vocabularies_apart(qwen3: TinyModel, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    from tokenrouter.subserver.sglang_compat.vocabulary import fingerprint

    def of(size: int) -> str:
        folder = tmp_path / str(size)
        folder.mkdir(exist_ok=True)
        save_tokenizer(folder, size)
        return fingerprint(AutoTokenizer.from_pretrained(folder))

    assert of(30) == of(30)
    assert of(30) != of(31)


@pytest.mark.parametrize(("rank", "device"), [(0, 3), (1, 5)])
def test_a_rank_has_its_device_and_samples_with_nobody(
    qwen3: TinyModel, build: Build, monkeypatch: pytest.MonkeyPatch, rank: int, device: int
) -> None:
    from sglang.srt.layers import sampler

    from tokenrouter.subserver.sglang_compat import loading

    made: list[tuple[Any, ...]] = []
    for name in ("SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK", "SGLANG_USE_MESSAGE_QUEUE_BROADCASTER"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("SGLANG_CPU_OMP_THREADS_BIND", "all")
    monkeypatch.setattr(sampler, "SYNC_TOKEN_IDS_ACROSS_TP", True)
    monkeypatch.setattr(loading, "Scheduler", lambda *args: made.append(args))
    monkeypatch.setattr(loading, "SGLangEngine", lambda *args: None)
    monkeypatch.setattr(loading, "check_rank_port", lambda *args: made.append(args))
    model = ModelConfig(name="m", model_path=qwen3.path, tp_size=2, base_gpu_id=3, gpu_id_step=2)
    loading.build_engine(model, MemberPorts("", "", 4567), [6], 5, rank)
    checked, (arguments, ports, *rest) = made[:-1], made[-1]
    assert checked == [("m", 4567)] * (rank == 0), "the first rank listens there, the others call"
    assert (arguments.tp_size, ports.nccl_port) == (2, 4567)
    assert rest[:2] == [device, rank]
    assert os.environ["SGLANG_CPU_OMP_THREADS_BIND"].split("|") == ["6", "6"]
    assert os.environ["SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK"] == "true"
    assert os.environ["SGLANG_USE_MESSAGE_QUEUE_BROADCASTER"] == "false"
    assert sampler.SYNC_TOKEN_IDS_ACROSS_TP is False
