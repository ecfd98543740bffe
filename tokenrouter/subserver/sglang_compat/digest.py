"""A checksum of every batch that an engine ran, by which tensor-parallel ranks compare."""

from __future__ import annotations

import zlib

import torch
from sglang.srt.managers.schedule_batch import ModelWorkerBatch


class BatchDigest:
    """Equal for equal histories of batches, and for no others but by chance (1 in 2**32)."""

    def __init__(self) -> None:
        self._value = 0
        self._last: ModelWorkerBatch | None = None

    def add(self, batch: ModelWorkerBatch) -> None:
        """Count ``batch`` in: its token ids, rows, lengths and KV slots."""
        self.value()
        self._last = batch

    def value(self) -> int:
        """The checksum (32 bits). Waits for the device, so it is best taken after a step."""
        batch, self._last = self._last, None
        if batch is not None:
            columns = (batch.input_ids, batch.req_pool_indices, batch.seq_lens, batch.out_cache_loc)
            counts = repr((batch.forward_mode.name, batch.extend_seq_lens)).encode()
            data = torch.cat(columns).cpu().numpy()
            self._value = zlib.crc32(data, zlib.crc32(counts, self._value))
        return self._value
