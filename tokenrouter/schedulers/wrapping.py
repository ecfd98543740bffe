"""An algorithm around another: what `hindsight` and `query` have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step, Vocabulary
from tokenrouter.schedulers.signals import Declared

if TYPE_CHECKING:
    from tokenrouter.ipc.messages import Sampling

P = ParamSpec("P")
T = TypeVar("T")

INNER = b"\0"
"""Begins a payload that the inner algorithm sent; what others begin with is the wrapper's."""


@dataclass(slots=True)
class Wrapped:
    """State of a request on one member: the inner algorithm's, and the wrapper's own.

    ``mark``: what the wrapper sends when control leaves; `INNER`: what the inner one sends.
    ``arrived``: the mark with which control came here; none where the request begins.
    """

    inner: Any
    mark: bytes = INNER
    arrived: bytes = b""


class Wrapping(RoutingScheduler):
    """Runs ``inner`` unless a subclass's `route` decides otherwise; subclasses mark what they send.

    The inner algorithm keeps its state as if it were alone, and hears of arrivals that it
    caused; of others it does not.
    """

    def __init__(self, inner: RoutingScheduler, router_threshold: float | None) -> None:
        super().__init__(inner.members, router_threshold)
        self.inner = inner
        self.scratch_tokens = inner.scratch_tokens

    @property
    def vocabulary(self) -> Vocabulary:
        """The member's; the inner algorithm's as well."""
        return self.inner.vocabulary

    @vocabulary.setter
    def vocabulary(self, vocabulary: Vocabulary) -> None:
        self.inner.vocabulary = vocabulary

    def check(self, sampling: Sampling, vocabulary_size: int) -> None:
        """As the inner algorithm."""
        self.inner.check(sampling, vocabulary_size)

    def signals(self, member: int) -> Collection[Declared]:
        """Those of the inner algorithm."""
        return self.inner.signals(member)

    def start(self, request: Request) -> Wrapped:
        """The inner algorithm's state, wrapped."""
        return Wrapped(self.inner.start(request))

    def send(self, request: Request, step: Step, decision: Decision) -> bytes:
        """The mark that `route` left, or what the inner algorithm sends."""
        mark: bytes = request.state.mark
        if mark != INNER:
            return mark
        return INNER + self.within(self.inner.send, request, step, decision)

    def receive(self, request: Request, payload: bytes) -> None:
        """Remember the mark, or tell the inner algorithm."""
        request.state.arrived = mark = payload[:1]
        if mark in (b"", INNER):
            self.within(self.inner.receive, request, payload[1:])

    def within(
        self, hook: Callable[Concatenate[Request, P], T], request: Request,
        *args: P.args, **kwargs: P.kwargs,
    ) -> T:  # fmt: skip
        """Call a hook of the inner algorithm, which sees its own state."""
        state: Wrapped = request.state
        request.state = state.inner
        try:
            return hook(request, *args, **kwargs)
        finally:
            state.inner, request.state = request.state, state
