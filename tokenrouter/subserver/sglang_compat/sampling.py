"""How the rows of a batch are sampled: `messages.Sampling` in, SGLang's `SamplingBatchInfo` out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.sampling.sampling_params import TOP_K_ALL, SamplingParams

from tokenrouter.ipc.messages import Sampling


class Draw(NamedTuple):
    """How one token is drawn, in SGLang's normal form (``top_k = 1``: greedy)."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float


GREEDY = Draw(temperature=1.0, top_p=1.0, top_k=1, min_p=0.0)


def draw_of(sampling: Sampling) -> Draw:
    """The normal form of ``sampling``: every greedy request becomes `GREEDY`."""
    params = SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
    )
    if params.top_k == 1:
        return GREEDY
    return Draw(params.temperature, params.top_p, params.top_k, params.min_p)


class RowSampling(NamedTuple):
    """SGLang's tensors for one batch.

    ``greedy`` marks the greedy rows of a batch that also draws (bool, on the device); None
    where all rows are of one kind. Such rows take the argmax of the raw logits, so that a
    request's tokens do not depend on who shares its batch.
    """

    info: SamplingBatchInfo
    greedy: torch.Tensor | None


@lru_cache(maxsize=256)
def row_sampling(draws: Sequence[Draw], vocab_size: int, device: str) -> RowSampling:
    """The sampling state of a batch; cached, because batches repeat from step to step.

    ``draws`` must be a tuple. Nothing in the result is changed by sampling.
    """
    temperatures, top_ps, top_ks, min_ps = zip(*draws, strict=True)
    greedy = [draw == GREEDY for draw in draws]
    info = SamplingBatchInfo(
        temperatures=torch.tensor(temperatures, dtype=torch.float32, device=device).view(-1, 1),
        top_ps=torch.tensor(top_ps, dtype=torch.float32, device=device),
        top_ks=torch.tensor(top_ks, dtype=torch.int32, device=device),
        min_ps=torch.tensor(min_ps, dtype=torch.float32, device=device),
        is_all_greedy=all(greedy),
        need_top_p_sampling=any(top_p != 1.0 for top_p in top_ps),
        need_top_k_sampling=any(top_k != TOP_K_ALL for top_k in top_ks),
        need_min_p_sampling=any(min_p > 0.0 for min_p in min_ps),
        vocab_size=vocab_size,
        device=device,
    )
    mixed = any(greedy) and not all(greedy)
    return RowSampling(info, torch.tensor(greedy, device=device) if mixed else None)
