"""Attention over the KV pool on a CPU, for SGLang's `torch_native` backend.

Stock code computes an extend for the whole sequence and throws the prefix away, O(L^2) for a
request that comes back with k tokens, and loops over the requests of a decode. Here an extend
computes its k new rows only, O(k L); heads that share a key are folded into rows of one query
instead of copying the keys; and a decode whose requests are about equally long is one call.

Shapes: query and output [tokens, heads, dim]; caches [slots, kv_heads, dim]; `req_to_token`
[requests, positions] gives the slot of each position.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

_PADDING_LIMIT = 1.5
"""One padded call is taken up to this many gathered positions per real one."""

_PADDING_SLOT = 0
"""SGLang never gives this slot to a request, so what it holds is finite."""


@dataclass(frozen=True, slots=True)
class Gather:
    """Which slots a batch reads; the same for every layer of a forward pass.

    `slots` is [requests, longest] with `mask` [requests, 1, 1, longest] true on real positions, or
    flat, one request after the other, with no mask.
    """

    seq_lens: torch.Tensor
    lengths: list[int]
    slots: torch.Tensor
    mask: torch.Tensor | None


def gather_flat(
    req_to_token: torch.Tensor, req_pool_indices: torch.Tensor, seq_lens: torch.Tensor
) -> Gather:
    """The slots of each request, one request after the other."""
    lengths = seq_lens.tolist()
    rows = zip(req_pool_indices.tolist(), lengths, strict=True)
    slots = torch.cat([req_to_token[row, :length] for row, length in rows])
    return Gather(seq_lens, lengths, slots, None)


def gather_for_decode(
    req_to_token: torch.Tensor, req_pool_indices: torch.Tensor, seq_lens: torch.Tensor
) -> Gather:
    """Padded to the longest request where that is cheap, else flat."""
    lengths = seq_lens.tolist()
    longest = max(lengths)
    if len(lengths) == 1 or longest * len(lengths) > _PADDING_LIMIT * sum(lengths):
        return gather_flat(req_to_token, req_pool_indices, seq_lens)
    mask = torch.arange(longest) < seq_lens.unsqueeze(1)
    # A row's tail is left from its former owners: masked weights are 0, but 0 * NaN is NaN.
    slots = req_to_token[req_pool_indices, :longest].masked_fill_(~mask, _PADDING_SLOT)
    return Gather(seq_lens, lengths, slots, mask[:, None, None, :])


def init_forward_metadata(backend: Any, forward_batch: Any) -> None:
    """Find the slots once per forward pass, for `backend.forward_metadata`."""
    backend.forward_metadata = None
    if forward_batch.batch_size == 0:
        return
    decode = forward_batch.forward_mode.is_decode()
    gather = gather_for_decode if decode else gather_flat
    backend.forward_metadata = gather(
        forward_batch.req_to_token_pool.req_to_token,
        forward_batch.req_pool_indices,
        forward_batch.seq_lens,
    )


def decode(
    backend: Any,
    query: torch.Tensor,
    output: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    scaling: float | None = None,
    enable_gqa: bool = False,
    causal: bool = False,
) -> torch.Tensor:
    """One new token per request attends to everything before it; writes and returns `output`."""
    plan: Gather | None = backend.forward_metadata
    if plan is None or plan.seq_lens is not seq_lens:
        plan = gather_for_decode(req_to_token, req_pool_indices, seq_lens)
    keys = k_cache.index_select(0, plan.slots.flatten())
    values = v_cache.index_select(0, plan.slots.flatten())
    if plan.mask is None:
        per_request = zip(keys.split(plan.lengths), values.split(plan.lengths), strict=True)
        for row, (k, v) in enumerate(per_request):
            output[row] = _attend_one(query[row], k, v, scaling)
        return output
    requests, heads, dim = query.shape
    kv_heads = keys.shape[1]
    attended = scaled_dot_product_attention(
        query.view(requests, kv_heads, heads // kv_heads, dim),
        keys.view(requests, -1, kv_heads, dim).transpose(1, 2),
        values.view(requests, -1, kv_heads, values.shape[2]).transpose(1, 2),
        attn_mask=plan.mask,
        scale=scaling,
    )
    output.copy_(attended.reshape(output.shape))
    return output


def extend(
    backend: Any,
    query: torch.Tensor,
    output: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    scaling: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """The last `extend_seq_lens` tokens of each request attend causally; writes `output`."""
    plan: Gather | None = backend.forward_metadata
    if plan is None or plan.seq_lens is not seq_lens or plan.mask is not None:
        plan = gather_flat(req_to_token, req_pool_indices, seq_lens)
    keys = k_cache.index_select(0, plan.slots).split(plan.lengths)
    values = v_cache.index_select(0, plan.slots).split(plan.lengths)
    start = 0
    for new, length, k, v in zip(extend_seq_lens.tolist(), plan.lengths, keys, values, strict=True):
        end = start + new
        if new == 1:
            output[start] = _attend_one(query[start], k, v, scaling)
        else:
            # Row i of the new ones is position length - new + i.
            mask = query.new_ones(new, length, dtype=torch.bool).tril_(length - new)
            attended = scaled_dot_product_attention(
                query[start:end].transpose(0, 1).unsqueeze(0),
                k.transpose(0, 1).unsqueeze(0),
                v.transpose(0, 1).unsqueeze(0),
                attn_mask=mask if new < length else None,
                is_causal=new == length,
                scale=scaling,
                enable_gqa=enable_gqa,
            )
            output[start:end] = attended.squeeze(0).transpose(0, 1)
        start = end
    return output


def _attend_one(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float | None
) -> torch.Tensor:
    """One token [heads, dim] against keys [length, kv_heads, dim]: [heads, value_dim]."""
    heads, dim = query.shape
    kv_heads = keys.shape[1]
    attended = scaled_dot_product_attention(
        query.view(1, kv_heads, heads // kv_heads, dim),
        keys.transpose(0, 1).unsqueeze(0),
        values.transpose(0, 1).unsqueeze(0),
        scale=scaling,
    )
    return attended.view(heads, values.shape[2])
