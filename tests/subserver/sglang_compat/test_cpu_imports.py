"""What SGLang's import does in a fresh interpreter, with every warning an error."""

import json
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="describes machines without CUDA")

_SCRIPT = """
import importlib, json, os, sys
from tokenrouter.subserver.sglang_compat.cpu_imports import prepare_sglang_import

def outcome(statement):
    try:
        exec(statement, {})
        return "imported"
    except ImportError:
        return "ImportError"

prepare_sglang_import()
finders = list(sys.meta_path)
prepare_sglang_import()
report = {"idempotent": finders == sys.meta_path}
for name in ("managers.scheduler", "managers.tokenizer_manager", "managers.detokenizer_manager",
             "entrypoints.http_server", "entrypoints.openai.serving_chat",
             "entrypoints.openai.serving_completions", "models.qwen3", "models.llama",
             "constrained.xgrammar_backend"):
    importlib.import_module("sglang.srt." + name)
report["modules"] = sorted(sys.modules)
report["environment"] = {name: os.environ.get(name)
                         for name in ("SGLANG_USE_CPU_ENGINE", "TORCHDYNAMO_DISABLE")}
report["refused"] = [outcome(statement) for statement in (
    "import vllm._C",
    "from vllm._custom_ops import rms_norm",
    "from vllm.model_executor.layers.layernorm import LayerNorm",
    "from vllm.model_executor.layers.quantization.gguf import GGUFConfig",
    "from sgl_kernel import silu_and_mul",
    "import sgl_kernel.flash_attn",
    "from sgl_kernel.kvcacheio import other",
)]
from sglang.srt.layers import activation, layernorm, quantization
from sglang.srt.utils import cpu_has_amx_support
report["own layers"] = [layernorm.RMSNorm.__module__, activation.SiluAndMul.__module__]
report["vllm quantization"] = quantization.VLLM_AVAILABLE
report["amx"] = cpu_has_amx_support()
import sglang, transformers
report["real afterwards"] = [
    hasattr(transformers.GenerationMixin, "generate"),
    hasattr(transformers.Qwen3ForCausalLM, "generate"),
    transformers.modeling_utils.PreTrainedModel.__module__,
    importlib.import_module("openai.types.responses").ResponseOutputItem is not None,
    importlib.import_module("sglang.lang.api").gen.__module__,
]
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def report() -> dict[str, object]:
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", _SCRIPT], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    result: dict[str, object] = json.loads(finished.stdout.splitlines()[-1])
    return result


def test_a_second_call_changes_nothing(report: dict[str, object]) -> None:
    assert report["idempotent"]


@pytest.mark.parametrize(
    "unused",
    [
        "aiohttp",
        "openai",
        "sglang.lang.api",
        "sympy",
        "torch._dynamo",
        "torch._inductor",
        "torchao",
        "transformers.modeling_utils",
    ],
)
def test_what_text_serving_never_calls_is_not_imported(
    report: dict[str, object], unused: str
) -> None:
    assert unused not in report["modules"]


def test_every_name_that_is_not_listed_is_an_import_error(report: dict[str, object]) -> None:
    assert report["refused"] == ["ImportError"] * 7
    assert report["vllm quantization"] is False


def test_layers_are_the_ones_of_sglang(report: dict[str, object]) -> None:
    assert report["own layers"] == ["sglang.srt.layers.layernorm", "sglang.srt.layers.activation"]


def test_environment_and_probes(report: dict[str, object]) -> None:
    assert report["environment"] == {"SGLANG_USE_CPU_ENGINE": "1", "TORCHDYNAMO_DISABLE": "1"}
    assert report["amx"] is False


def test_the_real_modules_are_found_later(report: dict[str, object]) -> None:
    assert report["real afterwards"] == [
        True,
        True,
        "transformers.modeling_utils",
        True,
        "sglang.lang.api",
    ]
