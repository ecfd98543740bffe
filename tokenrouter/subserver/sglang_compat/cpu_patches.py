"""What SGLang 0.5.1 lacks, or does slowly, once it runs on a CPU.

`cpu_imports.prepare_sglang_import` has let it be imported; these change what it does. Everything
replaced is named in `apply_cpu_patches`. On CUDA nothing is.
"""

import functools
from collections.abc import Callable
from typing import Any

from tokenrouter.subserver.sglang_compat import cpu_attention


@functools.cache
def apply_cpu_patches() -> None:
    """Replace what a CPU needs otherwise. Call it after SGLang's import, before a model is loaded.

    A second call does nothing.
    """
    import torch

    if torch.cuda.is_available():
        return
    _patch_attention()
    _patch_grammar()
    _patch_torchao()
    _patch_custom_all_reduce()


def _patch_attention() -> None:
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    stock_extend = TorchNativeAttnBackend._run_sdpa_forward_extend

    @functools.wraps(stock_extend)
    def extend(self: Any, *args: Any, causal: bool = False, **options: Any) -> Any:
        # Encoders and cross attention see everything; they are not served, and stay as they are.
        if not causal:
            return stock_extend(self, *args, causal=causal, **options)
        return cpu_attention.extend(self, *args, **options)

    TorchNativeAttnBackend._run_sdpa_forward_extend = extend
    TorchNativeAttnBackend._run_sdpa_forward_decode = cpu_attention.decode
    TorchNativeAttnBackend.init_forward_metadata = cpu_attention.init_forward_metadata


def _patch_grammar() -> None:
    """Stock code asks for a method that was never written; xgrammar has the function."""
    from sglang.srt.constrained.xgrammar_backend import XGrammarGrammar
    from xgrammar import apply_token_bitmask_inplace

    XGrammarGrammar.apply_vocab_mask_cpu = staticmethod(apply_token_bitmask_inplace)


def _patch_torchao() -> None:
    """Import torchao only for a model that asks for it; stock code does for every model."""
    from sglang.srt.model_executor import model_runner

    model_runner.apply_torchao_config_to_model = _only_with_config(
        model_runner.apply_torchao_config_to_model
    )


def _only_with_config(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def apply(model: Any, torchao_config: str | None, *args: Any) -> Any:
        return stock(model, torchao_config, *args) if torchao_config else model

    return apply


def _patch_custom_all_reduce() -> None:
    """Undo the probe that takes our stand-in for sgl_kernel as a sign of GPU collectives."""
    from sglang.srt.distributed.device_communicators import custom_all_reduce

    custom_all_reduce.custom_ar = False
