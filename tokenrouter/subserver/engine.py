"""The seam between the loop and whatever computes tokens: `Visit`, `Engine`, `StepBatch`.

The loop (`loop.py`) owns visits and decides; an engine computes and holds KV. Engines:
`timed.py`, and SGLang's in `sglang_compat/engine.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tokenrouter.errors import ModelError, RequestError
from tokenrouter.ipc.messages import Logprob, Route, Sampling
from tokenrouter.ipc.operations import Action
from tokenrouter.schedulers.base import Check, Request, RoutingScheduler
from tokenrouter.schedulers.signals import Checks, Signal, Trained
from tokenrouter.subserver.finish import FinishRule


class Checked(NamedTuple):
    """A check of a draft; ``logprobs`` of the draft and of `Check.token`, if the request asks."""

    check: Check
    logprobs: tuple[Logprob, Logprob] | None = None


@dataclass(slots=True, eq=False)
class Visit:
    """A request's presence on this member.

    ``tokens`` are the prompt and every committed token this member knows; KV exists for
    the first ``computed`` of them. ``control``: this member writes the next token.
    ``counted``: it may visit every member, so that it waits for thresholds. ``eager``:
    its prompt may be computed before control comes. ``resident``: the engine holds a
    slot for it. ``cached``: tokens the prefix cache gave at the first admission.
    ``blocked``: it has control, but there was no memory when it last asked, after
    ``starved_at`` departures (`memory.py`). ``follows``: it lets an older visit compute the
    prompt that they share; ``unshared``: its own is not computed yet, for others to find.
    ``run``: steps here since control last came, if it is counted. ``handle`` belongs to the engine;
    ``scheduler`` and ``request`` are the algorithm and what it sees. ``ending``: the rule by
    which its tokens end it, if its algorithm drafts.

    ``check``: how it checks drafts; ``unchecked``: drafts before the last ``scratch`` tokens
    that this member was handed and is to check; ``checked``: what steps have found of the
    first of them. The last ``scratch`` tokens are read once and forgotten.

    ``cuts``: each position from which tokens were replaced, in order, so that whoever
    follows ``tokens`` need not compare them (`Seen`). ``eos_ids``: of every member of the
    route. ``draws``: source of the draws of a request with a sampling seed. ``grammar``:
    what the engine has made of the request's, since `Engine.prepare`.
    """

    uid: int
    home: int
    prompt_length: int
    tokens: list[int]
    sampling: Sampling
    route: Route
    counted: bool
    eager: bool
    computed: int = 0
    cached: int | None = None
    control: bool = False
    resident: bool = False
    blocked: bool = False
    starved_at: int = -1
    follows: bool = False
    unshared: bool = False
    epoch: int = 0
    ready_since: float = 0.0
    run: int = 0
    handle: Any = None
    cuts: list[int] = field(default_factory=list)
    eos_ids: tuple[int, ...] = ()
    draws: Request | None = None
    grammar: Any = None
    scheduler: RoutingScheduler = field(init=False, repr=False)
    request: Request = field(init=False, repr=False)
    signals: tuple[Signal, ...] = ()
    check: Checks | None = None
    unchecked: int = 0
    scratch: int = 0
    checked: list[Checked] = field(default_factory=list)
    ending: FinishRule | None = None

    @property
    def length(self) -> int:
        """Tokens known."""
        return len(self.tokens)

    @property
    def pending(self) -> int:
        """Tokens known and not yet in KV."""
        return len(self.tokens) - self.computed

    @property
    def written(self) -> int:
        """Output tokens known."""
        return len(self.tokens) - self.prompt_length

    @property
    def first_draft(self) -> int:
        """Position of the first of the drafts to check."""
        return len(self.tokens) - self.scratch - self.unchecked

    @property
    def prepares(self) -> bool:
        """Whether it needs more than memory, for which `Engine.prepare` is asked."""
        if self.sampling.grammar is not None or self.check is not None:
            return True
        return any(isinstance(signal, Trained) for signal in self.signals)

    def would_end(self, token: int) -> bool:
        """Whether the output ends with ``token`` next, if the algorithm wants to know."""
        if self.ending is None:
            return False
        self.tokens.append(token)
        try:
            return self.ending.after(self.tokens, self.prompt_length, self.length) is not None
        finally:
            self.tokens.pop()

    def to_check(self, n: int) -> range:
        """Positions of the drafts to check when a step feeds the next ``n`` tokens: those
        whose logits it computes.
        """
        if not self.unchecked:
            return range(0)
        stop = len(self.tokens) - self.scratch
        first = max(self.computed + 1, stop - self.unchecked)
        return range(first, max(first, min(self.computed + n + 1, stop)))


@dataclass(slots=True)
class Seen:
    """How much of a visit's tokens its follower has seen: an engine's penalties, a grammar."""

    length: int = 0
    cuts: int = 0

    def news(self, visit: Visit, length: int) -> tuple[int, list[int]]:
        """Follow the first ``length`` tokens: how many of those seen still stand, and the tokens
        after those.
        """
        stands = min((self.length, length, *visit.cuts[self.cuts :]))
        self.length, self.cuts = length, len(visit.cuts)
        return stands, visit.tokens[stands:length]


Work = tuple[Visit, int]
"""A visit and how many of its pending tokens (>= 1) one step feeds."""


def to_check(work: Sequence[Work]) -> list[int]:
    """Which of the tokens that ``work`` feeds, counted over all rows, drafts to check follow."""
    found: list[int] = []
    fed = 0
    for visit, n in work:
        if visit.unchecked:
            found += [fed + position - 1 - visit.computed for position in visit.to_check(n)]
        fed += n
    return found


@dataclass(frozen=True, slots=True)
class StepBatch:
    """What one step gave, row by row as the work was passed.

    ``tokens[i]``: the token drawn after row i; meaningful only where the row's visit has
    nothing left to feed. ``signals[signal][i]``: its value for row i, where the visit asks.
    ``logprobs[i]``: of that token, for rows whose sampling asks. ``failed[i]``: why no token
    can be drawn after row i; if the model is at fault, the row's KV is worthless.
    ``checks[i]``: of drafts of row i that it found, see `Visit.to_check`.
    """

    tokens: Sequence[int]
    signals: Mapping[Signal, Sequence[Any]]
    logprobs: Mapping[int, Logprob] = field(default_factory=dict)
    failed: Mapping[int, RequestError | ModelError] = field(default_factory=dict)
    checks: Mapping[int, Sequence[Checked]] = field(default_factory=dict)


Meanwhile = Callable[[], None]


def nothing() -> None:
    """The `Meanwhile` of a step with nothing else to do."""


class Engine(Protocol):
    """What the loop asks of an engine. All calls come from one thread.

    The engine never changes a visit, except that `admit` sets ``computed`` and engines
    may keep what they like in ``handle``.
    """

    pool_tokens: int
    """KV capacity in tokens."""
    max_visits: int
    """How many visits may be resident at once."""

    def limit_vocabulary(self, size: int) -> None:
        """Never write ids from ``size`` on, nor let signals see them; called once, first.

        Members' vocabularies agree but for padding: the smallest one bounds all.
        """

    def prepare(self, visit: Visit, wake: Callable[[], None]) -> bool:
        """Whether what the visit needs beside memory is there; it may not step before.

        Called when the visit opens and, after a False, again once ``wake`` was called (from
        any thread).

        Raises:
            RequestError: it will never be: the request's grammar is none, or its algorithm asks
                for what this member was not made for.
        """

    def abandon(self, visit: Visit) -> None:
        """The visit closes: nothing that `prepare` began for it is wanted any more."""

    def admit(self, visit: Visit) -> bool:
        """Give the visit a slot and the cached prefix of its tokens.

        Sets ``visit.computed`` (at most ``length - 1``). False, changing nothing, if no
        slot is free.
        """

    def should_wait(self, visit: Visit, others: Sequence[Visit]) -> bool:
        """Whether ``visit`` (not resident) had better be admitted later.

        ``others`` are about to compute their prompts: True if the prefix cache will then
        have much of what ``visit`` would compute now. Changes nothing.
        """

    def share(self, visit: Visit, length: int) -> None:
        """Let visits admitted from now on find the KV of the first ``length`` tokens.

        They are computed: ``length <= visit.computed``.
        """

    def step(
        self, work: Sequence[Work], signals: Sequence[Signal], meanwhile: Meanwhile = nothing
    ) -> StepBatch:
        """Feed ``n`` pending tokens of each visit in one forward pass and sample.

        Drafts that `Visit.to_check` names are checked. After ``scratch`` tokens the draw is
        greedy and follows no rules: it is read, not written.

        ``meanwhile`` is called once, as soon as that delays neither the pass nor itself: on a
        device that computes by itself, while it does.

        The caller has made sure that `free_tokens` covers the sum of all n. ``computed``
        still holds the length before the step; the loop adds n afterwards.
        """

    def truncate(self, visit: Visit, length: int) -> None:
        """Free the KV from position ``length`` on (``length < visit.computed``)."""

    def release(self, visit: Visit) -> None:
        """Free everything the visit holds; its KV up to ``computed`` may stay cached."""

    def free_tokens(self) -> int:
        """KV tokens that could be had now without taking from a resident visit."""

    def control(self, action: Action, arguments: Mapping[str, Any]) -> str:
        """Do what `operations.Control` asks for, between two steps; returns what happened.

        No visit is resident while the cache is flushed or weights change. Without effect if
        it raises.

        Raises:
            TokenRouterError: it cannot be done, and why.
        """
