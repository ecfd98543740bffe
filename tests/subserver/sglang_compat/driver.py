"""Drives an engine as the loop does, one explicit step at a time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tests.subserver.sglang_compat.tiny_models import EOS
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.schedulers.base import Request
from tokenrouter.schedulers.signals import Signal
from tokenrouter.subserver.engine import Engine, StepBatch, Visit, Work

GREEDY = Sampling(max_new_tokens=64, temperature=0.0)
EOS_IDS = (EOS, 7)
"""Of the members of a route; the second is not this engine's own."""


class Driver:
    """``visits`` are all it made; `release_all` frees those still resident."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.visits: list[Visit] = []
        self._uids = itertools.count()

    def visit(
        self, tokens: Sequence[int], sampling: Sampling = GREEDY, sample: int = 0, member: int = 0
    ) -> Visit:
        visit = Visit(
            uid=next(self._uids),
            home=0,
            prompt_length=len(tokens),
            tokens=list(tokens),
            sampling=sampling,
            route=Route("single", (0,), 0),
            counted=True,
            eager=False,
            eos_ids=EOS_IDS,
        )
        if sampling.seed is not None:
            visit.draws = Request(visit.tokens, len(tokens), member, sampling.seed, sample)
        self.visits.append(visit)
        return visit

    def step(self, work: Sequence[Work], signals: Sequence[Signal] = ()) -> StepBatch:
        """Admit who is not resident, feed, and count the tokens as computed."""
        for visit, _ in work:
            self.admit(visit)
        assert all(0 < n <= visit.pending for visit, n in work)
        assert sum(n for _, n in work) <= self.engine.free_tokens()
        batch = self.engine.step(work, signals)
        for row, (visit, n) in enumerate(work):
            visit.computed += n
            visit.checked += batch.checks.get(row, ())
            if visit.unshared and visit.computed >= visit.prompt_length - 1:
                visit.unshared = False
                self.engine.share(visit, visit.prompt_length - 1)
        return batch

    def admit(self, visit: Visit) -> None:
        if not visit.resident:
            assert self.engine.admit(visit)
            visit.resident = True
            visit.unshared = visit.computed < visit.prompt_length - 1
            assert visit.computed < visit.length
            self._feed_again(visit)

    def hand(self, visit: Visit, drafts: Sequence[int]) -> None:
        """Others wrote ``drafts``, which this member is to check at its next step."""
        visit.tokens += drafts
        visit.unchecked = len(drafts)
        visit.checked.clear()
        self._feed_again(visit)

    def verify(self, visit: Visit, drafts: Sequence[int]) -> StepBatch:
        """Keep of ``drafts`` what the member would write, and what it writes next."""
        self.hand(visit, drafts)
        self.admit(visit)
        batch = self.step([(visit, visit.pending)])
        checks = [each.check for each in visit.checked]
        assert len(checks) == len(drafts)
        stand = next((i for i, each in enumerate(checks) if not each.accepted), len(checks))
        tokens = [each.token for each in checks] + list(batch.tokens)
        self.cut(visit, visit.length - len(drafts) + stand)
        visit.unchecked = 0
        visit.checked.clear()
        visit.tokens.append(tokens[stand])
        return batch

    def write(self, visits: Sequence[Visit], count: int) -> None:
        """Each visit writes ``count`` tokens, all in one batch per token."""
        for visit in visits:
            self.admit(visit)
        for _ in range(count):
            batch = self.step([(visit, visit.pending) for visit in visits])
            for visit, token in zip(visits, batch.tokens, strict=True):
                visit.tokens.append(token)

    def _feed_again(self, visit: Visit) -> None:
        if visit.unchecked and visit.computed >= visit.first_draft:
            self.truncate(visit, visit.first_draft - 1)

    def truncate(self, visit: Visit, length: int) -> None:
        self.engine.truncate(visit, length)
        visit.computed = length

    def cut(self, visit: Visit, length: int) -> None:
        """Tokens from ``length`` on were taken back, as a hand-over can."""
        if visit.computed > length - 1:
            self.truncate(visit, length - 1)
        if length < visit.length:
            del visit.tokens[length:]
            visit.cuts.append(length)

    def release(self, visit: Visit) -> None:
        self.engine.release(visit)
        visit.resident = visit.unshared = False
        visit.computed = 0
        visit.checked.clear()

    def release_all(self) -> None:
        for visit in self.visits:
            if visit.resident:
                self.release(visit)


def output(visit: Visit) -> list[int]:
    """What was written after the prompt."""
    return visit.tokens[visit.prompt_length :]
