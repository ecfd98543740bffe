"""Let SGLang 0.5.1 be imported on a machine without CUDA, and quickly.

Three things stand between a CPU and SGLang. It imports GPU kernels (sgl_kernel) and layers of vLLM
unconditionally where neither AMX nor a GPU is found: `StandInFinder` serves exactly those names.
It reads its environment while it is imported. And it, and Transformers with it, pulls in compilers
and client libraries that serving text on a CPU never calls, about half of the import time: those
are stood in for while the modules that mention them are imported, and are the real ones after.

On CUDA nothing here does anything.
"""

import functools
import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenrouter.subserver.sglang_compat.stand_ins import (
    Names,
    StandInFinder,
    placeholders,
    replaced,
    standing_in,
    unavailable,
)

_ENVIRONMENT = {
    # Otherwise SGLang takes a machine without a GPU for a broken one.
    "SGLANG_USE_CPU_ENGINE": "1",
    # Compiling costs 15 s in the first requests and gains nothing at these sizes.
    "TORCHDYNAMO_DISABLE": "1",
    # With a CUDA build of torch on a machine without a GPU, tensor-parallel ranks would load NCCL
    # and crash in it. A library that cannot be loaded makes SGLang go on without.
    "SGLANG_NCCL_SO_PATH": "/nonexistent/nccl-is-not-used-on-a-cpu.so",
}


def _own_layers(module: str, *names: str) -> Callable[[], Names]:
    """Names that SGLang takes from vLLM at the end of the very module that defines them.

    vLLM's classes are the older versions of SGLang's own, which have a native implementation.
    """
    return lambda: {name: getattr(sys.modules[module], name) for name in names}


_KERNELS: dict[str, Callable[[], Names]] = {
    "sgl_kernel": lambda: unavailable("sgl_kernel", "allreduce"),
    "sgl_kernel.kvcacheio": lambda: unavailable(
        "sgl_kernel.kvcacheio",
        "transfer_kv_all_layer",
        "transfer_kv_all_layer_lf_pf",
        "transfer_kv_all_layer_mla",
        "transfer_kv_all_layer_mla_lf_pf",
        "transfer_kv_direct",
        "transfer_kv_per_layer",
        "transfer_kv_per_layer_mla",
        "transfer_kv_per_layer_mla_pf_lf",
        "transfer_kv_per_layer_pf_lf",
    ),
}
_VLLM: dict[str, Callable[[], Names]] = {
    "vllm": dict,
    "vllm._custom_ops": lambda: unavailable("vllm._custom_ops", "rotary_embedding"),
    "vllm.model_executor": dict,
    "vllm.model_executor.layers": dict,
    "vllm.model_executor.layers.activation": _own_layers(
        "sglang.srt.layers.activation", "GeluAndMul", "SiluAndMul"
    ),
    "vllm.model_executor.layers.layernorm": _own_layers(
        "sglang.srt.layers.layernorm", "GemmaRMSNorm", "RMSNorm"
    ),
}


@functools.cache
def prepare_sglang_import() -> None:
    """Make `import sglang.srt...` work, and fast, on this machine. Call it before any such import.

    It imports torch, and on a CPU Transformers too; a second call does nothing.
    """
    import torch

    if torch.cuda.is_available():
        return
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    _provide_amx_probe()
    _compile_eagerly()
    for package, table in (("sgl_kernel", _KERNELS), ("vllm", _VLLM)):
        if importlib.util.find_spec(package) is None:
            sys.meta_path.append(StandInFinder(table))
    # Others' warnings about their own GPU parts and deprecations: nothing to act on here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _import_without_the_unused()


def _provide_amx_probe() -> None:
    """Give torch back the probe that SGLang calls while it is imported; new releases moved it."""
    import torch

    probe = "_is_amx_tile_supported"
    if not hasattr(torch._C._cpu, probe):
        setattr(torch._C._cpu, probe, getattr(torch.cpu, probe, lambda: False))


def _compile_eagerly() -> None:
    """Make `torch.compile` and `torch.compiler.disable` return what they are given.

    That is what they do with TORCHDYNAMO_DISABLE, except that SGLang's decorators would first
    import the compiler, a second of start-up and 80 MB.
    """
    import torch

    def unchanged(function: Any = None, *args: Any, **options: Any) -> Any:
        return function if function is not None else lambda decorated: decorated

    torch.compile = unchanged
    torch.compiler.disable = unchanged


_TRANSFORMERS_MODELS = {
    "transformers.generation.utils": placeholders("GenerationMixin"),
    "transformers.model_debugging_utils": placeholders("model_addition_debugger_context"),
    "transformers.modeling_utils": placeholders("PreTrainedAudioTokenizerBase"),
}
_LANGUAGE_FRONT_END = {
    "sglang.lang.api": placeholders(
        "Engine",
        "Runtime",
        "assistant",
        "assistant_begin",
        "assistant_end",
        "flush_cache",
        "function",
        "gen",
        "gen_int",
        "gen_string",
        "get_server_info",
        "image",
        "select",
        "separate_reasoning",
        "set_default_backend",
        "system",
        "system_begin",
        "system_end",
        "user",
        "user_begin",
        "user_end",
        "video",
    ),
    "sglang.lang.backend.runtime_endpoint": placeholders("RuntimeEndpoint"),
    "sglang.lang.choices": placeholders(
        "greedy_token_selection",
        "token_length_normalized",
        "unconditional_likelihood_normalized",
    ),
}
# Field types of the Responses API, which is not served: `Any` keeps the models well formed.
_OPENAI_CLIENT: dict[str, Names] = {
    "openai.types.responses": dict.fromkeys(
        (
            "ResponseFunctionToolCall",
            "ResponseInputItemParam",
            "ResponseOutputItem",
            "ResponseReasoningItem",
        ),
        Any,
    ),
    "openai.types.responses.response": {"ToolChoice": Any},
    "openai.types.responses.tool": {"Tool": Any},
}


def _import_without_the_unused() -> None:
    """Import the modules that would drag in the unused ones, with those stood in for."""
    with standing_in(_TRANSFORMERS_MODELS):
        _import_transformers_models()
        importlib.import_module("transformers.processing_utils")
        importlib.import_module("transformers.models.auto.auto_factory")
    with standing_in(_LANGUAGE_FRONT_END):
        importlib.import_module("sglang")
    with standing_in(_OPENAI_CLIENT):
        importlib.import_module("sglang.srt.configs.model_config")


def _import_transformers_models() -> None:
    """Let `transformers.models` reuse what its parent has just read from 1300 source files.

    Both ask for the same folder by different names, and the cache between them goes by name.
    """
    import transformers
    from transformers.utils import import_utils

    models = Path(transformers.__file__).parent / "models"
    scan = import_utils.define_import_structure

    def scan_once(path: str | Path, prefix: str | None = None) -> Any:
        return scan(models if Path(path) == models / "__init__.py" else path, prefix)

    with replaced(import_utils, "define_import_structure", scan_once):
        importlib.import_module("transformers.models")
