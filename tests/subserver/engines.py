"""Timed engines that differ from the real one: a prefix cache, and one error each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tokenrouter.schedulers.signals import Signal
from tokenrouter.subserver.engine import Meanwhile, StepBatch, Visit, Work, nothing
from tokenrouter.subserver.timed import TimedEngine, extend_context


class PrefixCache(TimedEngine):
    """Remembers every prefix it computed, as a radix cache does; what is hit counts as held.

    Prompts are remembered once they are computed, the rest on release.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._seen: set[int] = set()
        self.hits = 0
        self.followers = 0

    def should_wait(self, visit: Visit, others: Sequence[Visit]) -> bool:
        waits = any(
            other.prompt_length > 2 and other.tokens[:2] == visit.tokens[:2] for other in others
        )
        self.followers += waits
        return waits

    def share(self, visit: Visit, length: int) -> None:
        self._seen.update(visit.handle[: length + 1])

    def admit(self, visit: Visit) -> bool:
        if not super().admit(visit):
            return False
        for token in visit.tokens[: min(visit.length - 1, self.free_tokens())]:
            context = extend_context(visit.handle[-1], token)
            if context not in self._seen:
                break
            visit.handle.append(context)
            visit.computed += 1
        self._used += visit.computed
        self.hits += visit.computed
        return True

    def release(self, visit: Visit) -> None:
        self._seen.update(visit.handle)
        super().release(visit)


class WrongPosition(TimedEngine):
    """Feeds what comes after the last computed token one place too late."""

    def _feed(self, visit: Visit, n: int) -> int:
        if visit.computed == 0:
            return super()._feed(visit, n)
        for token in visit.tokens[visit.computed - 1 : visit.computed - 1 + n]:
            visit.handle.append(extend_context(visit.handle[-1], token))
        return int(visit.handle[-1])


class RepeatsTokens(TimedEngine):
    """Every fifth step gives the first row's token of the step before."""

    steps = 0
    last = 0

    def step(
        self, work: Sequence[Work], signals: Sequence[Signal], meanwhile: Meanwhile = nothing
    ) -> StepBatch:
        batch = super().step(work, signals, meanwhile)
        self.steps += 1
        tokens = [self.last, *batch.tokens[1:]] if self.steps % 5 == 0 else list(batch.tokens)
        self.last = batch.tokens[0]
        return StepBatch(tokens, batch.signals)


class MixesRows(TimedEngine):
    """Gives each row of a batch the token of another one."""

    def step(
        self, work: Sequence[Work], signals: Sequence[Signal], meanwhile: Meanwhile = nothing
    ) -> StepBatch:
        batch = super().step(work, signals, meanwhile)
        return StepBatch(batch.tokens[::-1], batch.signals)


class ZeroesKv(TimedEngine):
    """The KV of the last token fed becomes zero once in a while."""

    steps = 0

    def step(
        self, work: Sequence[Work], signals: Sequence[Signal], meanwhile: Meanwhile = nothing
    ) -> StepBatch:
        batch = super().step(work, signals, meanwhile)
        self.steps += 1
        if self.steps % 7 == 0:
            work[0][0].handle[-1] = 0
        return batch


class KeepsCutKv(TimedEngine):
    """Counts truncated tokens as free, and goes on after them."""

    def truncate(self, visit: Visit, length: int) -> None:
        self._used -= visit.computed - length


class KeepsEvictedKv(TimedEngine):
    """A visit that is admitted again finds its old context, and appends to it."""

    def admit(self, visit: Visit) -> bool:
        old = visit.handle
        admitted = super().admit(visit)
        if admitted and old:
            visit.handle = old
        return admitted

    def release(self, visit: Visit) -> None:
        kept = visit.handle
        super().release(visit)
        visit.handle = kept


class LeaksCutTokens(TimedEngine):
    """Never gives truncated tokens back."""

    def truncate(self, visit: Visit, length: int) -> None:
        del visit.handle[length + 1 :]


class LeaksSlots(TimedEngine):
    """Forgets a slot once in a while."""

    released = 0

    def release(self, visit: Visit) -> None:
        super().release(visit)
        self.released += 1
        self.visits += self.released % 9 == 0


MUTANTS: list[Callable[..., TimedEngine]] = [
    WrongPosition,
    RepeatsTokens,
    MixesRows,
    ZeroesKv,
    KeepsCutKv,
    KeepsEvictedKv,
    LeaksCutTokens,
    LeaksSlots,
]
