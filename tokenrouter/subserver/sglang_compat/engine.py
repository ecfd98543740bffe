"""SGLang behind the `Engine` seam: visits in, tokens and signals out.

Called by the loop only. It owns a stock SGLang scheduler whose queues stay empty and uses
its pools, its radix (or chunk) cache and its worker; `loading.py` builds it, `batch.py`
turns work into batches. Every call is deterministic, so that the ranks of a
tensor-parallel member, given the same calls, hold the same pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import ModelWorkerBatch
from sglang.srt.managers.scheduler import Scheduler

from tokenrouter.errors import TokenRouterError
from tokenrouter.schedulers.signals import Signal
from tokenrouter.subserver.engine import StepBatch, Visit, Work
from tokenrouter.subserver.sglang_compat import signals as signal_values
from tokenrouter.subserver.sglang_compat.batch import build_batch
from tokenrouter.subserver.sglang_compat.sampling import GREEDY, Draw, draw_of, row_sampling
from tokenrouter.subserver.sglang_compat.vocabulary import eos_ids, fingerprint


@dataclass(slots=True)
class Residence:
    """What a resident visit holds (its ``handle``).

    ``row`` of the request-to-token table; its first ``shared`` KV slots belong to the
    cache, which keeps them as long as ``node`` is locked; the rest are the visit's own.
    """

    row: int
    shared: int
    node: Any
    draw: Draw


class SGLangEngine:
    """One model's engine; see `tokenrouter.subserver.engine.Engine`.

    ``context_length`` bounds a request (prompt and output), ``vocab_size`` is the width of
    the logits, ``eos_ids`` are the tokens at which SGLang ends a request, and
    ``tokenizer_fingerprint`` is equal for equal vocabularies.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._pool = scheduler.req_to_token_pool
        self._allocator = scheduler.token_to_kv_pool_allocator
        self._cache = scheduler.tree_cache
        self._worker = scheduler.tp_worker
        self.pool_tokens: int = scheduler.max_total_num_tokens
        self.max_visits: int = self._pool.size
        self.context_length: int = scheduler.model_config.context_len
        self.vocab_size: int = scheduler.model_config.vocab_size
        self.eos_ids = eos_ids(scheduler.model_config, scheduler.tokenizer)
        self.tokenizer_fingerprint = fingerprint(scheduler.tokenizer)
        self._vocabulary = self.vocab_size

    def limit_vocabulary(self, size: int) -> None:
        """Never sample, nor let signals see, token ids from ``size`` on.

        For members whose logits are padded beyond the smallest vocabulary of a deployment.
        """
        self._vocabulary = min(size, self.vocab_size)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, special tokens included, as SGLang reads it for stop strings."""
        text: str = self.scheduler.tokenizer.decode(list(ids))
        return text

    def free_tokens(self) -> int:
        """KV tokens unused, or cached and held by nobody."""
        free: int = self._allocator.available_size() + self._cache.evictable_size()
        return free

    @torch.no_grad()
    def admit(self, visit: Visit) -> bool:
        """Give the visit a row and lock the longest cached prefix short of its last token."""
        rows = self._pool.alloc(1)
        if rows is None:
            return False
        match = self._cache.match_prefix(key=visit.tokens[:-1])
        shared = len(match.device_indices)
        self._cache.inc_lock_ref(match.last_device_node)
        if shared:
            self._pool.write((rows[0], slice(0, shared)), match.device_indices.to(torch.int32))
        visit.handle = Residence(
            row=rows[0],
            shared=shared,
            node=match.last_device_node,
            draw=draw_of(visit.sampling),
        )
        visit.computed = shared
        return True

    @torch.no_grad()
    def step(self, work: Sequence[Work], signals: Sequence[Signal]) -> StepBatch:
        """One forward pass over ``work``, then signals from its raw logits, then sampling.

        Raises:
            TokenRouterError: the pool has no room; nothing has changed.
        """
        slots = self._allocate(sum(n for _, n in work))
        # A row that still has tokens to feed samples nothing that counts: the cheapest way.
        draws = tuple(visit.handle.draw if visit.pending == n else GREEDY for visit, n in work)
        sampling = row_sampling(draws, self.vocab_size, self._pool.device)
        batch = build_batch(work, slots, self._pool, sampling.info)
        output, _, _ = self._worker.forward_batch_generation(batch, skip_sample=True)
        logits = output.next_token_logits[:, : self._vocabulary]
        output.next_token_logits = logits
        blocks = signal_values.columns(logits, signals)
        tokens = self._sample(output, batch, sampling.greedy)
        ids, values = signal_values.fetch(tokens, signals, blocks)
        return StepBatch(ids, values)

    def _sample(
        self, output: Any, batch: ModelWorkerBatch, greedy: torch.Tensor | None
    ) -> torch.Tensor:
        """Token ids (int64) of the rows; overwrites the logits unless all rows are greedy."""
        best = output.next_token_logits.argmax(dim=-1) if greedy is not None else None
        drawn: torch.Tensor = self._worker.model_runner.sample(output, batch).to(torch.int64)
        return drawn if best is None else torch.where(greedy, best, drawn)

    def _allocate(self, count: int) -> torch.Tensor:
        shortage = count - self._allocator.available_size()
        if shortage > 0:
            self._cache.evict(shortage)
        slots: torch.Tensor | None = self._allocator.alloc(count)
        if slots is None:
            raise TokenRouterError(
                f"a step needs {count} KV tokens and only {self.free_tokens()} are free"
            )
        return slots

    @torch.no_grad()
    def truncate(self, visit: Visit, length: int) -> None:
        """Free the KV from ``length`` on; the visit may cut into the prefix it shares."""
        held: Residence = visit.handle
        own = self._pool.req_to_token[held.row, max(length, held.shared) : visit.computed]
        self._allocator.free(own.to(torch.int64))
        if length < held.shared:
            # The cache keeps the slots cut off; only the lock moves up, to position `length`.
            match = self._cache.match_prefix(key=visit.tokens[:length])
            self._cache.inc_lock_ref(match.last_device_node)
            self._cache.dec_lock_ref(held.node)
            held.node, held.shared = match.last_device_node, length

    @torch.no_grad()
    def release(self, visit: Visit) -> None:
        """Leave the visit's KV to the cache and free its row and its lock."""
        held: Residence = visit.handle
        tokens = visit.tokens[: visit.computed]
        # SGLang frees the KV of all tokens but the last, of which there is none yet.
        finished = SimpleNamespace(
            req_pool_idx=held.row,
            origin_input_ids=tokens,
            output_ids=[0],
            prefix_indices=range(held.shared),
            last_node=held.node,
        )
        self._cache.cache_finished_req(finished)
        visit.handle = None

    def check_pools(self) -> None:
        """Verify, while no visit is resident, that every row and KV slot is accounted for once.

        Raises:
            TokenRouterError: something leaked or was freed twice.
        """
        rows = self._pool.free_slots
        if sorted(rows) != list(range(self._pool.size)):
            raise TokenRouterError(f"rows leaked: {len(rows)} of {self._pool.size} are free")
        locked = self._cache.protected_size()
        if locked or self.free_tokens() != self.pool_tokens:
            raise TokenRouterError(
                f"KV leaked: {self.free_tokens()} of {self.pool_tokens} tokens free, {locked} locked"
            )
        slots = [self._allocator.free_pages, self._allocator.release_pages]
        if self._cache.evictable_size():
            slots.append(self._cache.all_values_flatten())
        distinct = torch.cat(slots).unique().numel()
        if distinct != self.pool_tokens:
            raise TokenRouterError(f"KV freed twice: {distinct} of {self.pool_tokens} slots exist")
