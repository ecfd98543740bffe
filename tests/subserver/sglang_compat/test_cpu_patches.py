"""What the patches replace in SGLang itself."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tokenrouter.subserver.sglang_compat import cpu_attention
from tokenrouter.subserver.sglang_compat.cpu_imports import prepare_sglang_import
from tokenrouter.subserver.sglang_compat.cpu_patches import apply_cpu_patches

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is patched with CUDA")


@pytest.fixture(scope="module", autouse=True)
def _patched() -> None:
    prepare_sglang_import()
    apply_cpu_patches()


@pytest.fixture
def attention() -> Any:
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    return TorchNativeAttnBackend(SimpleNamespace(device="cpu"))


def test_a_second_call_wraps_nothing_twice(attention: Any) -> None:
    before = type(attention)._run_sdpa_forward_extend
    apply_cpu_patches()
    assert type(attention)._run_sdpa_forward_extend is before
    assert not hasattr(before.__wrapped__, "__wrapped__")


def extend_arguments(length: int, new: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return (
        torch.randn(new, 4, 8),
        torch.zeros(new, 4, 8),
        torch.randn(32, 2, 8),
        torch.randn(32, 2, 8),
        torch.arange(1, 31, dtype=torch.int32).unsqueeze(0),
        torch.tensor([0]),
        torch.tensor([length]),
        torch.tensor([length - new]),
        torch.tensor([new]),
    )


def test_the_causal_extend_is_ours(attention: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_attention, "extend", lambda *args, **options: "ours")
    arguments = extend_arguments(20, 4)
    assert attention._run_sdpa_forward_extend(*arguments, causal=True) == "ours"


def test_attention_that_is_not_causal_stays_stock(attention: Any) -> None:
    query, _, k_cache, v_cache, *_ = arguments = extend_arguments(20, 20)
    output = attention._run_sdpa_forward_extend(*arguments, enable_gqa=True, causal=False)
    seen = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        k_cache[1:21].transpose(0, 1)[None],
        v_cache[1:21].transpose(0, 1)[None],
        enable_gqa=True,
    )
    assert torch.allclose(output, seen[0].transpose(0, 1), atol=1e-5)


def test_the_decode_is_ours(attention: Any) -> None:
    assert type(attention)._run_sdpa_forward_decode is cpu_attention.decode
    assert type(attention).init_forward_metadata is cpu_attention.init_forward_metadata


def test_a_grammar_masks_logits_on_a_cpu() -> None:
    from sglang.srt.constrained.xgrammar_backend import XGrammarGrammar
    from xgrammar import allocate_token_bitmask

    grammar = object.__new__(XGrammarGrammar)
    mask = allocate_token_bitmask(2, 40)
    mask[0] = torch.tensor([0b101, 0])
    logits = torch.zeros(2, 40)
    grammar.apply_vocab_mask(logits, mask)
    assert logits[0].isfinite().nonzero().flatten().tolist() == [0, 2]
    assert logits[1].isfinite().all()


def test_torchao_is_left_alone_without_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.model_executor import model_runner

    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    model = torch.nn.Linear(1, 1)
    assert model_runner.apply_torchao_config_to_model(model, "") is model
    with pytest.raises(ImportError):
        model_runner.apply_torchao_config_to_model(model, "int8wo")


def test_no_gpu_collectives_are_tried() -> None:
    from sglang.srt.distributed.device_communicators import custom_all_reduce

    assert custom_all_reduce.custom_ar is False
