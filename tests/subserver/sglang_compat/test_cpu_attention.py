"""The CPU attention against the stock one, on random tensors and shuffled slots."""

import importlib.util
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tokenrouter.subserver.sglang_compat import cpu_attention
from tokenrouter.subserver.sglang_compat.cpu_imports import prepare_sglang_import

TOLERANCE = 1e-5
HEADS = [(4, 4, 16), (4, 2, 16), (6, 1, 8)]
"""Query heads, key heads, dim: plain, grouped and multi-query attention."""


@pytest.fixture(scope="module")
def stock() -> Any:
    """The stock backend from a copy of its module, untouched by what tests have patched."""
    prepare_sglang_import()
    name = "sglang.srt.layers.attention.torch_native_backend"
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TorchNativeAttnBackend(SimpleNamespace(device="cpu"))


@dataclass(frozen=True)
class Pool:
    """A KV pool of three requests in shuffled slots, each row's tail left from someone else."""

    k_cache: torch.Tensor
    v_cache: torch.Tensor
    req_to_token: torch.Tensor
    req_pool_indices: torch.Tensor
    seq_lens: torch.Tensor


def pool(lengths: list[int], kv_heads: int, dim: int, value_dim: int | None = None) -> Pool:
    torch.manual_seed(len(lengths) + sum(lengths))
    size = 16 * max(lengths)
    rows = torch.randint(1, size, (16, 2 * max(lengths)), dtype=torch.int32)
    k_cache = torch.randn(size, kv_heads, dim)
    k_cache[0] = 0
    v_cache = torch.randn(size, kv_heads, value_dim or dim)
    v_cache[0] = 0
    return Pool(k_cache, v_cache, rows, torch.randperm(16)[: len(lengths)], torch.tensor(lengths))


def backend() -> Any:
    return SimpleNamespace(forward_metadata=None)


def run_decode(which: Any, query: torch.Tensor, kv: Pool) -> torch.Tensor:
    function = getattr(which, "_run_sdpa_forward_decode", None)
    output = torch.full((*query.shape[:2], kv.v_cache.shape[2]), torch.nan)
    arguments = (kv.k_cache, kv.v_cache, kv.req_to_token, kv.req_pool_indices, kv.seq_lens)
    options = {"scaling": 0.3, "enable_gqa": query.shape[1] != kv.k_cache.shape[1]}
    if function is None:
        return cpu_attention.decode(which, query, output, *arguments, **options)
    result: torch.Tensor = function(query, output, *arguments, **options)
    return result


def run_extend(which: Any, query: torch.Tensor, kv: Pool, new: list[int]) -> torch.Tensor:
    function = getattr(which, "_run_sdpa_forward_extend", None)
    output = torch.full((*query.shape[:2], kv.v_cache.shape[2]), torch.nan)
    extend_lens = torch.tensor(new)
    arguments = (kv.k_cache, kv.v_cache, kv.req_to_token, kv.req_pool_indices, kv.seq_lens)
    prefixes = (kv.seq_lens - extend_lens, extend_lens)
    options = {"scaling": 0.3, "enable_gqa": query.shape[1] != kv.k_cache.shape[1]}
    if function is None:
        return cpu_attention.extend(which, query, output, *arguments, *prefixes, **options)
    result: torch.Tensor = function(query, output, *arguments, *prefixes, causal=True, **options)
    return result


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference; NaN wherever either holds one."""
    return float((one - other).abs().max())


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), HEADS)
@pytest.mark.parametrize("lengths", [[1], [37], [30, 33, 29], [3, 90, 1, 41], [8, 8]])
def test_decode_equals_stock(
    stock: Any, lengths: list[int], heads: int, kv_heads: int, dim: int
) -> None:
    kv = pool(lengths, kv_heads, dim)
    query = torch.randn(len(lengths), heads, dim)
    assert distance(run_decode(backend(), query, kv), run_decode(stock, query, kv)) < TOLERANCE


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), HEADS)
@pytest.mark.parametrize(
    ("lengths", "new"),
    [
        ([12], [12]),
        ([50], [3]),
        ([50], [1]),
        ([40, 9, 64, 2], [2, 9, 1, 1]),
        ([70, 70, 30], [5, 20, 29]),
    ],
)
def test_extend_equals_stock(
    stock: Any, lengths: list[int], new: list[int], heads: int, kv_heads: int, dim: int
) -> None:
    kv = pool(lengths, kv_heads, dim)
    query = torch.randn(sum(new), heads, dim)
    ours, theirs = run_extend(backend(), query, kv, new), run_extend(stock, query, kv, new)
    assert distance(ours, theirs) < TOLERANCE


def test_values_may_have_another_width(stock: Any) -> None:
    kv = pool([20, 21], 2, 16, value_dim=8)
    query = torch.randn(2, 4, 16)
    assert distance(run_decode(backend(), query, kv), run_decode(stock, query, kv)) < TOLERANCE
    query = torch.randn(4, 4, 16)
    ours, theirs = run_extend(backend(), query, kv, [3, 1]), run_extend(stock, query, kv, [3, 1])
    assert distance(ours, theirs) < TOLERANCE


LENGTHS = [30, 33, 29]
NEW = [2, 1, 29]


def corrupted_slot(kv: Pool) -> Pool:
    """One cached token of the second request is another's."""
    table = kv.req_to_token.clone()
    table[kv.req_pool_indices[1], 7] = table[kv.req_pool_indices[0], 0]
    return replace(kv, req_to_token=table)


def swapped_requests(kv: Pool) -> Pool:
    return replace(kv, req_pool_indices=kv.req_pool_indices.flip(0))


def one_short(kv: Pool) -> Pool:
    """The first request does not see its newest token."""
    return replace(kv, seq_lens=kv.seq_lens - torch.tensor([1, 0, 0]))


@pytest.mark.parametrize("corrupt", [corrupted_slot, swapped_requests, one_short])
def test_a_corrupted_decode_is_noticed(stock: Any, corrupt: Any) -> None:
    kv = pool(LENGTHS, 2, 16)
    query = torch.randn(3, 4, 16)
    ours = run_decode(backend(), query, corrupt(kv))
    assert distance(ours, run_decode(stock, query, kv)) > 100 * TOLERANCE


@pytest.mark.parametrize("corrupt", [corrupted_slot, one_short])
def test_a_corrupted_extend_is_noticed(stock: Any, corrupt: Any) -> None:
    kv = pool(LENGTHS, 2, 16)
    query = torch.randn(sum(NEW), 4, 16)
    ours = run_extend(backend(), query, corrupt(kv), NEW)
    assert distance(ours, run_extend(stock, query, kv, NEW)) > 100 * TOLERANCE


def test_what_former_owners_left_does_not_leak() -> None:
    """A NaN in a freed slot must not reach a request whose padded row still names that slot."""
    kv = pool([20, 24], 2, 16)
    query = torch.randn(2, 4, 16)
    clean = run_decode(backend(), query, kv)
    used = {
        int(slot)
        for row, length in zip(kv.req_pool_indices, kv.seq_lens, strict=True)
        for slot in kv.req_to_token[row, :length]
    }
    tail = kv.req_to_token[kv.req_pool_indices[0], 20:24].tolist()
    freed = [slot for slot in tail if slot not in used]
    assert freed
    kv.k_cache[freed] = torch.nan
    kv.v_cache[freed] = torch.nan
    assert distance(run_decode(backend(), query, kv), clean) < TOLERANCE


def forward_batch(kv: Pool, decode: bool) -> Any:
    return SimpleNamespace(
        batch_size=len(kv.seq_lens),
        forward_mode=SimpleNamespace(is_decode=lambda: decode),
        req_to_token_pool=SimpleNamespace(req_to_token=kv.req_to_token),
        req_pool_indices=kv.req_pool_indices,
        seq_lens=kv.seq_lens,
    )


def test_slots_found_for_a_forward_pass_are_used_in_it() -> None:
    kv = pool(LENGTHS, 2, 16)
    query = torch.randn(3, 4, 16)
    ours = backend()
    cpu_attention.init_forward_metadata(ours, forward_batch(kv, decode=True))
    assert distance(run_decode(ours, query, kv), run_decode(backend(), query, kv)) == 0
    cpu_attention.init_forward_metadata(ours, forward_batch(kv, decode=False))
    query = torch.randn(sum(NEW), 4, 16)
    assert distance(run_extend(ours, query, kv, NEW), run_extend(backend(), query, kv, NEW)) == 0


def test_slots_of_another_batch_are_not_used() -> None:
    kv, other = pool(LENGTHS, 2, 16), pool([5, 90, 2], 2, 16)
    query = torch.randn(3, 4, 16)
    ours = backend()
    cpu_attention.init_forward_metadata(ours, forward_batch(other, decode=True))
    assert distance(run_decode(ours, query, kv), run_decode(backend(), query, kv)) == 0


def test_an_empty_batch_needs_no_slots() -> None:
    ours = backend()
    batch = SimpleNamespace(batch_size=0)
    cpu_attention.init_forward_metadata(ours, batch)
    assert ours.forward_metadata is None
