"""Builds SGLang for one member: its arguments, its ports, its stock scheduler, our engine."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import psutil
import torch
from sglang.srt.configs.model_config import ModelConfig as SGLangModelConfig
from sglang.srt.distributed.device_communicators import pynccl_wrapper
from sglang.srt.layers import sampler
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.server_args import ServerArgs

from tokenrouter.config import ModelConfig
from tokenrouter.configuration.memory import cpu_pool_tokens
from tokenrouter.configuration.preflight import check_rank_port
from tokenrouter.errors import ConfigError
from tokenrouter.ipc.ports import MemberPorts
from tokenrouter.schedulers.signals import Declared, OfNetworks
from tokenrouter.subserver.sglang_compat.engine import SGLangEngine
from tokenrouter.subserver.sglang_compat.gpu_memory import count_fractions_of_whole_gpus
from tokenrouter.subserver.sglang_compat.sglang_ports import sglang_ports
from tokenrouter.subserver.sglang_compat.stand_ins import replaced

CPU_VISITS = 512
"""Resident visits on a CPU unless ``max_running_requests`` says otherwise."""

_CPU_DEFAULTS: Mapping[str, Any] = {
    "attention_backend": "torch_native",
    "disable_cuda_graph": True,
}
_ALWAYS: Mapping[str, Any] = {
    # Grammars are compiled by `grammar_compiler`, once a request brings one.
    "grammar_backend": "none",
    # KV is counted and cut token by token, in one pool for all layers.
    "page_size": 1,
    "disable_hybrid_swa_memory": True,
    # The next step depends on what algorithms make of this one.
    "disable_overlap_schedule": True,
}


def build_engine(
    model: ModelConfig,
    ports: MemberPorts,
    cores: Sequence[int],
    seed: int,
    rank: int = 0,
    signals: Collection[Declared] = (),
) -> SGLangEngine:
    """Load ``model`` (weights, KV pool, tokenizer) and wrap it; seconds to minutes.

    Returns on no tensor-parallel rank before all are loaded.

    ``cores``: those this rank may use, one thread each. ``seed``: of its random draws.
    ``signals``: what algorithms ask of it; their networks are loaded.

    Raises:
        ConfigError: the model cannot be served with these arguments, its port is taken, or a
            network is not there or not for this model.
    """
    torch.set_num_threads(max(1, len(cores)))
    arguments = server_arguments(model, seed)
    # CUDA graphs give hidden states only if they were captured with them.
    arguments.enable_return_hidden_states = any(isinstance(each, OfNetworks) for each in signals)
    if rank == 0:
        # Torch, finding its port taken, would take whoever listens for a peer and wait for it.
        check_rank_port(model.name, ports.nccl)
    if model.tp_size > 1:
        _prepare_ranks(model.tp_size, cores)
    if arguments.device == "cuda" and model.sglang.get("mem_fraction_static") is not None:
        count_fractions_of_whole_gpus()
    device = arguments.base_gpu_id + rank * arguments.gpu_id_step
    with _one_group() if model.tp_size == 1 else nullcontext():
        scheduler = Scheduler(arguments, sglang_ports(ports.nccl), device, rank, 0, 0, None)
    return SGLangEngine(scheduler, _serves_grammars(model), signals)


def _prepare_ranks(count: int, cores: Sequence[int]) -> None:
    """What SGLang reads of its surroundings when it builds one of several ranks."""
    # Members share devices, so that ranks may well find different amounts of memory free.
    os.environ.setdefault("SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK", "true")
    # Its own choice is one NUMA node a rank. It looks up this rank's entry only.
    own = ",".join(map(str, cores or sorted(os.sched_getaffinity(0))))
    os.environ["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join([own] * count)
    # Nothing is broadcast through SGLang, whose queue would leave shared memory behind.
    os.environ["SGLANG_USE_MESSAGE_QUEUE_BROADCASTER"] = "false"
    # Rank 0 samples alone: nobody would answer.
    sampler.SYNC_TOKEN_IDS_ACROSS_TP = False
    if not torch.cuda.is_available():
        # That there is no NCCL is no error on a CPU.
        logging.getLogger(pynccl_wrapper.__name__).setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", "`torch.distributed.all_gather_into_tensor`")


def _one_group() -> AbstractContextManager[None]:
    """Let a lone rank's process groups, in which nobody talks, be one.

    Each of the ten that SGLang makes would have a thread that wakes a hundred times a second.
    """

    def world(*args: Any, **options: Any) -> Any:
        return torch.distributed.group.WORLD

    return replaced(torch.distributed, "new_group", world)


def _serves_grammars(model: ModelConfig) -> bool:
    return (model.sglang.get("grammar_backend") or "xgrammar") == "xgrammar"


def server_arguments(model: ModelConfig, seed: int) -> ServerArgs:
    """SGLang's arguments for ``model``: on a CPU with our defaults, on CUDA with its own.

    Raises:
        ConfigError: an attention backend that stores KV in pages.
    """
    device = model.sglang.get("device") or ("cuda" if torch.cuda.is_available() else "cpu")
    on_cpu = device == "cpu"
    visits = {"max_running_requests": max(CPU_VISITS, model.max_batch)}
    arguments = ServerArgs(
        **{
            **({**_CPU_DEFAULTS, **visits} if on_cpu else {}),
            **model.sglang,
            **_ALWAYS,
            "device": device,
            "model_path": str(model.model_path),
            "tp_size": model.tp_size,
            "dtype": model.dtype or "auto",
            "context_length": model.context_length,
            "max_total_tokens": model.max_total_tokens,
            "chunked_prefill_size": model.chunked_prefill_size,
            "random_seed": seed % 2**32,
        }
    )
    if arguments.page_size != 1:
        raise ConfigError(
            f"models.{model.name}.attention_backend: stores KV in pages of {arguments.page_size} "
            "tokens, and visits need pages of 1; choose another"
        )
    if on_cpu and arguments.max_total_tokens is None:
        arguments.max_total_tokens = _cpu_pool_tokens(arguments)
    return arguments


def _cpu_pool_tokens(arguments: ServerArgs) -> int:
    """A KV pool that leaves the memory to weights, other members and other programs."""
    config = SGLangModelConfig.from_server_args(arguments)
    per_token = (
        2
        * config.num_hidden_layers
        * config.get_num_kv_heads(arguments.tp_size)
        * config.head_dim
        * config.dtype.itemsize
    )
    return cpu_pool_tokens(int(per_token), psutil.virtual_memory().total)
