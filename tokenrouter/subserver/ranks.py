"""Tensor parallelism of one member: rank 0 leads, its other ranks do as its engine did.

Rank 0 runs the loop. Each call that changes its engine's pools, or runs the model, is also
posted to the other ranks, and leaves for them in one frame before the step begins. They
(`follower.py`) replay the calls on mirrors of the visits. So arrivals, timers, sampled tokens
and decisions of algorithms reach the ranks only as calls: batches are equal by construction,
and a rank without work waits for a message, not inside a collective. Every frame carries a
digest of the batches so far, by which a rank notices that it has diverged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tokenrouter.errors import RankError, TokenRouterError
from tokenrouter.ipc.channels import Outbox
from tokenrouter.ipc.messages import Message, Route, Sampling
from tokenrouter.ipc.operations import Action, Control
from tokenrouter.ipc.rank_calls import Admit, Feed, Release, Share, Truncate
from tokenrouter.schedulers.signals import Signal
from tokenrouter.subserver.engine import (
    Engine,
    Meanwhile,
    StepBatch,
    Visit,
    Work,
    nothing,
    to_check,
)

UNSENT_CALLS = 1024
"""So many calls leave for the other ranks without waiting for a step."""


class RankedEngine(Engine, Protocol):
    """An engine that is one rank of its model."""

    def replay(self, work: Sequence[Work], checked: Sequence[int] = ()) -> None:
        """The forward pass of `step` alone: rank 0 samples for all. ``checked``: see `Feed`."""

    def digest(self) -> int:
        """Stands for all batches so far: token ids, rows, positions and KV slots."""


class LeadingEngine:
    """Rank 0's engine, which the other ranks follow; see `engine.Engine`.

    Args:
        outboxes: one to each other rank.
    """

    def __init__(self, engine: RankedEngine, outboxes: Sequence[Outbox]) -> None:
        self.pool_tokens = engine.pool_tokens
        self.max_visits = engine.max_visits
        self._engine = engine
        self._outboxes = tuple(outboxes)
        self._unsent = 0
        self._profiling = False

    def limit_vocabulary(self, size: int) -> None:
        """Of rank 0 alone, which samples for all."""
        self._engine.limit_vocabulary(size)

    def prepare(self, visit: Visit, wake: Callable[[], None]) -> bool:
        """Of rank 0 alone, which samples for all."""
        return self._engine.prepare(visit, wake)

    def abandon(self, visit: Visit) -> None:
        """Of rank 0 alone, which samples for all."""
        self._engine.abandon(visit)

    def admit(self, visit: Visit) -> bool:
        """As the engine, and on every rank."""
        admitted = self._engine.admit(visit)
        if admitted:
            self._post(Admit(visit.uid, visit.tokens[: visit.computed + 1]))
        return admitted

    def step(
        self, work: Sequence[Work], signals: Sequence[Signal], meanwhile: Meanwhile = nothing
    ) -> StepBatch:
        """As the engine: every rank computes its part, this one samples."""
        rows = [(v.uid, v.tokens[v.computed : v.computed + n]) for v, n in work]
        self._post(Feed(rows, self._engine.digest(), to_check(work)))
        self._flush()
        return self._engine.step(work, signals, meanwhile)

    def should_wait(self, visit: Visit, others: Sequence[Visit]) -> bool:
        """As the engine, which it does not change."""
        return self._engine.should_wait(visit, others)

    def share(self, visit: Visit, length: int) -> None:
        """As the engine, and on every rank."""
        self._engine.share(visit, length)
        self._post(Share(visit.uid, length))

    def truncate(self, visit: Visit, length: int) -> None:
        """As the engine, and on every rank."""
        self._engine.truncate(visit, length)
        self._post(Truncate(visit.uid, length))

    def release(self, visit: Visit) -> None:
        """As the engine, and on every rank."""
        self._engine.release(visit)
        self._post(Release(visit.uid))

    def free_tokens(self) -> int:
        """As the engine: all ranks have equal pools."""
        return self._engine.free_tokens()

    def control(self, action: Action, arguments: Mapping[str, Any]) -> str:
        """As the engine, and on every rank, unless it fails here."""
        together = action == "stop_profile" and self._profiling
        if together:  # the ranks wait for each other while they write
            self._tell(action, arguments)
        told = self._engine.control(action, arguments)
        if not together:
            self._tell(action, arguments)
        self._profiling = action == "start_profile" or (self._profiling and not together)
        return told

    def _tell(self, action: Action, arguments: Mapping[str, Any]) -> None:
        self._post(Control(0, action, dict(arguments)))
        self._flush()

    def _post(self, call: Message) -> None:
        for outbox in self._outboxes:
            outbox.post(call)
        self._unsent += 1
        if self._unsent == UNSENT_CALLS:
            self._flush()

    def _flush(self) -> None:
        self._unsent = 0
        for outbox in self._outboxes:
            outbox.flush()


class Mirror:
    """The visits of rank 0 on another rank: `apply` repeats there what happened to them."""

    def __init__(self, engine: RankedEngine) -> None:
        self._engine = engine
        self._visits: dict[int, Visit] = {}

    def apply(self, call: Message) -> None:
        """Repeat one call of rank 0's engine; a `Feed` returns when its pass is done.

        Raises:
            RankError: the ranks have diverged: they hold different pools, or would.
        """
        match call:
            case Admit(uid, tokens):
                self._visits[uid] = self._admit(uid, tokens)
            case Share(uid, length):
                self._engine.share(self._visit(uid), length)
            case Truncate(uid, length):
                visit = self._visit(uid)
                self._engine.truncate(visit, length)
                visit.computed = length
            case Release(uid):
                self._engine.release(self._visit(uid))
                del self._visits[uid]
            case Feed(rows, digest, checked):
                self._check(digest)
                self._feed(rows, checked)
            case Control(_, action, arguments):
                self._control(action, arguments)
            case _:
                raise RankError(f"rank 0 sent {type(call).__name__}, which is not for its ranks")

    def _admit(self, uid: int, tokens: list[int]) -> Visit:
        visit = Visit(uid, 0, 0, tokens, _UNUSED_SAMPLING, _UNUSED_ROUTE, False, False)
        if not self._engine.admit(visit):
            raise RankError(f"request {uid} has a slot on rank 0, and there is none here")
        if visit.computed != len(tokens) - 1:
            raise RankError(
                f"request {uid} found {len(tokens) - 1} cached tokens on rank 0, and "
                f"{visit.computed} here"
            )
        return visit

    def _feed(self, rows: Sequence[tuple[int, list[int]]], checked: Sequence[int]) -> None:
        work: list[Work] = []
        for uid, tokens in rows:
            visit = self._visit(uid)
            visit.tokens[visit.computed :] = tokens
            work.append((visit, len(tokens)))
        self._engine.replay(work, checked)
        for visit, n in work:
            visit.computed += n

    def _control(self, action: Action, arguments: dict[str, Any]) -> None:
        try:
            self._engine.control(action, arguments)
        except TokenRouterError as error:
            raise RankError(f"{action} succeeded on rank 0, and failed here: {error}") from error

    def _check(self, digest: int) -> None:
        own = self._engine.digest()
        if own != digest:
            raise RankError(
                f"the batches here differ from those of rank 0 (digest {own:08x}, not "
                f"{digest:08x}): what was computed since they diverged is wrong"
            )

    def _visit(self, uid: int) -> Visit:
        visit = self._visits.get(uid)
        if visit is None:
            raise RankError(f"request {uid} is resident on rank 0, and not here")
        return visit


# Only rank 0 samples and routes.
_UNUSED_SAMPLING = Sampling(max_new_tokens=0, temperature=0.0)
_UNUSED_ROUTE = Route("", (), 0)
