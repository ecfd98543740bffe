"""The table of visits on this member, and the events that change it.

Everything that happens to a visit arrives here as an event, in one order: messages of
homes (`Open`, `HandOver`, `Close`) and what the last step decided (`Stepped`). Applying
the same events to the same table gives the same batches, on every rank of a member.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tokenrouter.errors import RoutingError
from tokenrouter.ipc.messages import Close, HandOver, Open
from tokenrouter.schedulers.base import Step
from tokenrouter.subserver.engine import Engine, Visit
from tokenrouter.subserver.routing import Router


class Stepped(msgspec.Struct, frozen=True):
    """A step's outcome for one visit: ``tokens`` replace the last ``cut`` ones, and of all of
    them the last ``drafts`` are not final; it keeps control or not.
    """

    uid: int
    tokens: Sequence[int]
    control: bool
    cut: int = 0
    drafts: int = 0


Event = Open | HandOver | Close | Stepped


class Visits:
    """Visits by uid.

    Args:
        eos_ids: of each member of the deployment. A visit of a request that may visit them
            all is ``counted``.
    """

    def __init__(self, engine: Engine, router: Router, eos_ids: Sequence[Collection[int]]) -> None:
        self._engine = engine
        self.router = router
        self._eos_ids = eos_ids
        self._everyone = frozenset(range(len(eos_ids)))
        self._visits: dict[int, Visit] = {}
        self.departures = 0
        """Visits that have ended: each may have made room for a blocked one."""
        self.stale = 0
        """Events for visits that are gone: expected after an abort, never applied."""

    def __len__(self) -> int:
        return len(self._visits)

    def __iter__(self) -> Iterator[Visit]:
        return iter(self._visits.values())

    def get(self, uid: int) -> Visit | None:
        """The visit of request ``uid``, if it is here."""
        return self._visits.get(uid)

    def apply(self, home: int, event: Event, now: float) -> Visit | None:
        """Change the table. ``home`` sent the event (or owns the visit); ``now`` in seconds.

        Returns the visit that it opened, if it opened one.

        Raises:
            RoutingError: a hook of the visit's algorithm failed, or the home skipped tokens.
        """
        visit = self._visits.get(event.uid)
        if visit is not None and isinstance(event, Stepped):
            if event.cut:
                self._cut(visit, visit.length - event.cut)
            visit.tokens += event.tokens
            visit.request.drafts = event.drafts
            if visit.unchecked:
                self._forget_checks(visit)
            visit.control = event.control
            if event.control and visit.computed >= len(visit.tokens):
                self.feed_again(visit)
            visit.ready_since = now
        elif isinstance(event, Open):
            return self._open(home, event)
        elif visit is None:
            self.stale += 1
        elif isinstance(event, HandOver):
            self._arrive(visit, event, now)
        else:
            self._close(visit)
        return None

    def _open(self, home: int, event: Open) -> Visit:
        visit = Visit(
            uid=event.uid,
            home=home,
            prompt_length=len(event.prompt),
            tokens=list(event.prompt),
            sampling=event.sampling,
            route=event.route,
            counted=self._everyone.issubset(event.route.members),
            eager=event.eager,
            eos_ids=tuple(sorted({e for m in event.route.members for e in self._eos_ids[m]})),
        )
        self.router.begin(visit)
        if (seed := event.sampling.seed) is not None:
            visit.draws = dataclasses.replace(visit.request, seed=seed, state=None)
        self._visits[event.uid] = visit
        return visit

    def _arrive(self, visit: Visit, event: HandOver, now: float) -> None:
        if event.start > visit.length:
            raise RoutingError(
                f"request {visit.uid}: tokens {visit.length}..{event.start - 1} never arrived"
            )
        self._cut(visit, event.start)
        visit.tokens.extend(event.tokens)
        visit.request.drafts = event.drafts
        visit.unchecked = event.drafts if visit.check else 0
        self.feed_again(visit)
        visit.control = True
        visit.epoch = event.epoch
        visit.ready_since = now
        self.router.receive(visit, event.payload)
        if scratch := visit.request.scratch:
            visit.scratch = len(scratch)
            visit.tokens += scratch

    def finish_step(self, visit: Visit, token: int, signals: Mapping[str, Any]) -> Step:
        """What the algorithm is told of a step; the visit forgets what only that was to read."""
        scratch = visit.scratch > 0
        if scratch:
            self._cut(visit, visit.length - visit.scratch)
            visit.scratch, visit.request.scratch = 0, ()
        checks = [each.check for each in visit.checked] if visit.checked else ()
        ends = visit.ending is not None and visit.would_end(token)
        return Step((token,), signals, checks, ends, scratch)

    def feed_again(self, visit: Visit) -> None:
        """Forget the KV of tokens whose logits are wanted and gone.

        Something must be sampled after the last one; a draft is checked after the one before it.
        """
        wanted = visit.first_draft if visit.unchecked else len(visit.tokens)
        if visit.computed >= wanted:
            self._truncate(visit, wanted - 1)

    def discard(self, visit: Visit) -> None:
        """Forget all KV of a visit that has failed, so that none is left to others."""
        self._truncate(visit, 0)
        visit.eager = visit.unshared = False

    def _forget_checks(self, visit: Visit) -> None:
        """What was handed over is checked; a member need not check its own drafts."""
        visit.request.proposals = ()
        visit.unchecked = 0
        visit.checked.clear()

    def _cut(self, visit: Visit, length: int) -> None:
        """Forget the tokens from ``length`` on."""
        if length < visit.length:
            self._truncate(visit, length)
            del visit.tokens[length:]
            visit.cuts.append(length)

    def _truncate(self, visit: Visit, length: int) -> None:
        if visit.computed > length:
            self._engine.truncate(visit, length)
            visit.computed = length
            del visit.checked[max(length + 1 - visit.first_draft, 0) :]

    def _close(self, visit: Visit) -> None:
        self._engine.abandon(visit)
        if visit.resident:
            self._engine.release(visit)
        del self._visits[visit.uid]
        self.departures += 1
