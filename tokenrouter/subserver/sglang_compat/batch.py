"""Turns the work of one step into the batch that SGLang's worker runs.

The one work rule: row i feeds tokens ``computed .. computed + n`` of its visit. If every n
is 1 the batch is a DECODE (CUDA graphs apply); otherwise one EXTEND holds fresh prompts,
chunks, resumed requests and single tokens together. Python work is O(sum of n), never
O(length): nothing is kept from step to step that another step would have to repair.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch
from sglang.srt.managers.schedule_batch import ModelWorkerBatch
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardMode
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from tokenrouter.errors import TokenRouterError
from tokenrouter.subserver.engine import Work


def build_batch(
    work: Sequence[Work],
    slots: torch.Tensor,
    pool: ReqToTokenPool,
    sampling: SamplingBatchInfo,
    checks: bool = False,
    hidden: bool = False,
) -> ModelWorkerBatch:
    """The batch of one step, its KV slots entered in ``pool``.

    ``slots``: one free KV slot (int64, on the device) per token fed. ``checks``: keep the
    hidden states after all of them, unless the batch is a DECODE. ``hidden``: at least those
    after each row's last one.

    Raises:
        TokenRouterError: the work feeds tokens that its visits do not have, or that have no
            entry in their rows.
    """
    ids: list[int] = []
    rows: list[int] = []
    lengths: list[int] = []
    for visit, n in work:
        length = visit.computed + n
        ids += visit.tokens[length - n : length]
        rows.append(visit.handle.row)
        lengths.append(length)
    if len(ids) != len(slots):
        raise TokenRouterError(f"{len(slots)} tokens to feed, and visits have {len(ids)} of them")
    table = pool.req_to_token
    width = table.shape[1]
    if max(lengths) > width:
        raise TokenRouterError(f"a visit has {max(lengths)} tokens, and rows have {width} entries")
    decode = len(ids) == len(work)
    # Of the table as one line: an index of one dimension is several times cheaper to write by.
    ends = [row * width + length for row, length in zip(rows, lengths, strict=True)]
    if decode:
        entries = [end - 1 for end in ends]
    else:
        fed = zip(ends, work, strict=True)
        entries = [entry for end, (_, n) in fed for entry in range(end - n, end)]
    host, device = _to_device(pool.device, (ids, rows, lengths, entries))
    table.put_(device[3], slots.int())
    return ModelWorkerBatch(
        bid=0,
        forward_mode=ForwardMode.DECODE if decode else ForwardMode.EXTEND,
        input_ids=device[0],
        req_pool_indices=device[1],
        seq_lens=device[2],
        seq_lens_cpu=host[2],
        seq_lens_sum=sum(lengths),
        orig_seq_lens=device[2].int(),
        out_cache_loc=slots,
        extend_num_tokens=None if decode else len(ids),
        extend_seq_lens=None if decode else [n for _, n in work],
        extend_prefix_lens=None if decode else [visit.computed for visit, _ in work],
        sampling_info=sampling,
        capture_hidden_mode=_capture(checks, hidden, decode),
        spec_algorithm=SpeculativeAlgorithm.NONE,
        multimodal_inputs=[None] * len(work),
        lora_ids=[None] * len(work),
        **_UNUSED,
    )


def _capture(checks: bool, hidden: bool, decode: bool) -> CaptureHiddenMode:
    """All tokens of a DECODE are last ones, and CUDA graphs know no LAST."""
    if decode:
        return CaptureHiddenMode.FULL if hidden else CaptureHiddenMode.NULL
    if checks:
        return CaptureHiddenMode.FULL
    return CaptureHiddenMode.LAST if hidden else CaptureHiddenMode.NULL


_UNUSED = dict.fromkeys(
    (
        "top_logprobs_nums",
        "token_ids_logprobs",
        "global_num_tokens",
        "global_num_tokens_for_logprob",
        "tbo_split_seq_index",
        "global_forward_mode",
        "extend_logprob_start_lens",
        "extend_input_logprob_token_ids",
        "encoder_cached",
        "encoder_lens",
        "encoder_lens_cpu",
        "encoder_out_cache_loc",
    )
) | dict.fromkeys(("return_logprob", "is_extend_in_batch", "can_run_dp_cuda_graph"), False)
"""Fields for features that are off: logprobs, data parallelism, encoders."""


def _to_device(
    device: str, columns: Sequence[list[int]]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The columns as int64 tensors on the host and on ``device``, moved in one copy.

    Each starts at a multiple of 16 bytes: Triton compiles a kernel again for pointers
    aligned otherwise.
    """
    flat = array("q")
    bounds: list[slice] = []
    for column in columns:
        bounds.append(slice(len(flat), len(flat) + len(column)))
        flat.fromlist(column)
        if len(column) % 2:
            flat.append(0)
    host = torch.frombuffer(flat, dtype=torch.int64)
    here = [host[each] for each in bounds]
    if device == "cpu":
        return here, here
    moved = host.to(device, non_blocking=True)
    return here, [moved[each] for each in bounds]
