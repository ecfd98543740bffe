"""Rows and KV slots of resident visits, in SGLang's pools and its radix (or chunk) cache.

Used by `engine.py`. Nothing here looks at tokens' values except to find cached prefixes. A
prompt is left to the cache once it is computed, so that those who come after find it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.managers.scheduler import Scheduler

from tokenrouter.errors import TokenRouterError
from tokenrouter.subserver.engine import Visit
from tokenrouter.subserver.sglang_compat.rules import Rules, asked
from tokenrouter.subserver.sglang_compat.sampling import Draw, draw_of

WORTH_WAITING = 32
"""Tokens that a prompt must share with one being computed to wait for it."""


@dataclass(slots=True)
class Residence:
    """What a resident visit holds (its ``handle``), and how its tokens are drawn.

    ``rules``: what it asks of its draws beyond ``draw``, if anything.

    ``row`` of the request-to-token table; its first ``shared`` KV slots belong to the
    cache, which keeps them as long as ``node`` is locked; the rest are the visit's own.
    """

    row: int
    shared: int
    node: Any
    draw: Draw
    rules: Rules | None


class Pools:
    """``rows`` is SGLang's request-to-token table, ``size`` the KV slots there are.

    ``vocabulary``: ids from here on are never written.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.rows = scheduler.req_to_token_pool
        self.size: int = scheduler.max_total_num_tokens
        self._slots = scheduler.token_to_kv_pool_allocator
        self._cache = scheduler.tree_cache
        self.vocabulary: int = scheduler.model_config.vocab_size
        self._caches = not scheduler.server_args.disable_radix_cache

    def free(self) -> int:
        """KV slots unused, or cached and held by nobody."""
        free: int = self._slots.available_size() + self._cache.evictable_size()
        return free

    def allocate(self, count: int) -> torch.Tensor:
        """``count`` free KV slots (int64, on the device), taken from the cache if need be.

        Raises:
            TokenRouterError: there are not so many; nothing has been taken.
        """
        slots: torch.Tensor | None = self._slots.alloc(count)
        if slots is None:
            if self.free() < count:
                raise TokenRouterError(
                    f"a step needs {count} KV tokens and only {self.free()} are free"
                )
            self._cache.evict(count - self._slots.available_size())
            slots = self._slots.alloc(count)
        return slots

    def admit(self, visit: Visit) -> bool:
        """Give the visit a row and lock the longest cached prefix short of its last token."""
        rows = self.rows.alloc(1)
        if rows is None:
            return False
        match = self._cache.match_prefix(key=visit.tokens[:-1])
        prefix = match.device_indices
        self._cache.inc_lock_ref(match.last_device_node)
        self.rows.write((rows[0], slice(0, len(prefix))), prefix.to(torch.int32))
        rules = Rules(visit, self.vocabulary) if asked(visit.sampling) else None
        visit.handle = Residence(
            rows[0], len(prefix), match.last_device_node, draw_of(visit.sampling), rules
        )
        visit.computed = len(prefix)
        return True

    def share(self, visit: Visit, length: int) -> None:
        """Give the KV of the first ``length`` tokens to the cache; the visit goes on with it.

        Where the cache has it already, the visit's own copy is freed.
        """
        if not self._caches:
            return
        held: Residence = visit.handle
        unfinished = SimpleNamespace(
            req_pool_idx=held.row,
            fill_ids=visit.tokens[:length],
            prefix_indices=range(held.shared),
            last_node=held.node,
        )
        self._cache.cache_unfinished_req(unfinished)
        held.shared, held.node = length, unfinished.last_node

    def should_wait(self, visit: Visit, others: Sequence[Visit]) -> bool:
        """Whether ``visit`` will find many more of its tokens cached after one of ``others``."""
        if not self._caches or not others:
            return False
        known = visit.tokens[:-1]
        start = self._cached(known)
        stop = start + WORTH_WAITING
        return stop <= len(known) and any(
            stop < other.prompt_length
            and other.tokens[start:stop] == known[start:stop]
            and other.tokens[:start] == known[:start]
            for other in others
        )

    def _cached(self, tokens: Sequence[int]) -> int:
        """How many of ``tokens`` the cache has. Changes nothing there, as `match_prefix` would."""
        node, found = self._cache.root_node, 0
        while found < len(tokens):
            rest = tokens[found:]
            child = node.children.get(self._cache.get_child_key_fn(rest))
            if child is None:
                break
            matched: int = self._cache.key_match_fn(child.key, rest)
            found += matched
            if matched < len(child.key):
                break
            node = child
        return found

    def truncate(self, visit: Visit, length: int) -> None:
        """Free the KV from ``length`` on, even where that cuts into the shared prefix."""
        held: Residence = visit.handle
        own = self.rows.req_to_token[held.row, max(length, held.shared) : visit.computed]
        self._slots.free(own.to(torch.int64))
        if length < held.shared:
            # The cache keeps what is cut off; only the lock moves up to position `length`.
            match = self._cache.match_prefix(key=visit.tokens[:length])
            self._cache.inc_lock_ref(match.last_device_node)
            self._cache.dec_lock_ref(held.node)
            held.node, held.shared = match.last_device_node, length

    def release(self, visit: Visit) -> None:
        """Leave the visit's KV to the cache; free its row and its lock."""
        held: Residence = visit.handle
        # SGLang takes the last output token for one without KV; there is none such here.
        finished = SimpleNamespace(
            req_pool_idx=held.row,
            origin_input_ids=visit.tokens[: visit.computed],
            output_ids=[0],
            prefix_indices=range(held.shared),
            last_node=held.node,
        )
        self._cache.cache_finished_req(finished)
        visit.handle = None

    def check(self) -> None:
        """Verify, while no visit is resident, that every row and KV slot is accounted for once.

        Raises:
            TokenRouterError: something leaked or was freed twice.
        """
        rows = self.rows.free_slots
        if sorted(rows) != list(range(self.rows.size)):
            raise TokenRouterError(f"rows leaked: {len(rows)} of {self.rows.size} are free")
        free, locked = self.free(), self._cache.protected_size()
        if locked or free != self.size:
            raise TokenRouterError(f"KV leaked: {free} of {self.size} tokens free, {locked} locked")
        slots = [self._slots.free_pages, self._slots.release_pages]
        if self._cache.evictable_size():
            slots.append(self._cache.all_values_flatten())
        distinct = len(set(torch.cat(slots).tolist()))
        if distinct != self.size:
            raise TokenRouterError(f"KV freed twice: {distinct} of {self.size} slots exist")
