"""Query level: from its prompt, one model is chosen to write the whole answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers import registry
from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.routellm import RouteLLM
from tokenrouter.schedulers.signals import CiterConfidence, Declared
from tokenrouter.schedulers.single import Single
from tokenrouter.schedulers.trained import trained_file
from tokenrouter.schedulers.wrapping import INNER, Wrapping

Kind = Literal["random", "head", "routellm"]
KINDS = ("random", "head", "routellm")
SMALL = 0
STREAM = -1
"""Of the draw, which an inner algorithm's must not equal."""
CHOSEN = b"\1"
"""The payload with which a request moves to the large model for good."""
UNDECIDED = b""
"""Nobody sent the request here: it begins."""


class Query(Wrapping):
    """The last member writes everything if the prompt asks for it, else the first member.

    Args:
        kind: ``random``: with probability ``router_threshold`` (default 0.5).
            ``head``: if the classifier in file ``head`` (`routers.citer` has its format) finds
            at least ``router_threshold`` (default 0.5) in the small model's hidden state at the
            last token of the prompt, which that model computes; its token is dropped.
            ``routellm``: if that package's ``router``, made with ``router_args``, scores the last
            message (of a completion: the prompt) at least ``router_threshold``.
        then: ``{algorithm, router_threshold, algorithm_args}``: goes on, instead of the first
            member alone, where the large model was not chosen.
    """

    threshold_range = (0.0, 1.0)

    def __init__(
        self,
        members: Sequence[str],
        router_threshold: float | None = None,
        kind: Kind = "random",
        head: str | None = None,
        router: str | None = None,
        router_args: Mapping[str, Any] | None = None,
        then: Mapping[str, Any] | None = None,
    ) -> None:
        if len(members) < 2:
            raise ConfigError("algorithm: query chooses between models, and one is configured")
        super().__init__(_inner(members, then), router_threshold)
        _check_arguments(kind, router_threshold, head, router, router_args)
        self.threshold = 0.5 if router_threshold is None else router_threshold
        self.large = len(members) - 1
        self.alone = then is None
        self.kind = kind
        self.drafts = self.inner.drafts
        self.chooses_members = kind != "head"
        self.head = None if head is None else self._signal(head)
        self.routellm = None if router is None else RouteLLM(router, router_args or {})

    def signals(self, member: int) -> Collection[Declared]:
        """Those of the inner algorithm, and the small model's score of the prompt."""
        inner = self.inner.signals(member)
        return inner if self.head is None or member != SMALL else (*inner, self.head)

    def choose_members(self, request: Request, text: str) -> Sequence[int]:
        """One model, or whoever the inner algorithm may ask."""
        if self._drawn(request) if self.routellm is None else self._scored(text):
            return (self.large,)
        return (SMALL,) if self.alone else range(len(self.members))

    def route(self, request: Request, step: Step) -> Decision:
        """Choose at the first step, and stay with it."""
        state = request.state
        if state.arrived == UNDECIDED:
            large = request.member == self.large or self._prefers_large(request, step)
            state.arrived = CHOSEN if large else INNER
        if state.arrived == INNER:
            state.mark = INNER
            return self.within(self.inner.route, request, step)
        if request.member == self.large:
            return Decision(len(step.tokens), self.large)
        state.mark = CHOSEN
        return Decision(0, self.large)

    def _prefers_large(self, request: Request, step: Step) -> bool:
        """Of a request that begins on the small model; where it begins may have been the choice."""
        if self.head is not None:
            return bool(step.signals[self.head.name] >= self.threshold)
        return self.routellm is None and self._drawn(request)

    def _signal(self, head: str) -> CiterConfidence:
        signal = CiterConfidence(trained_file("head", head, "a classifier of prompts"))
        if any(each.name == signal.name for each in self.inner.signals(SMALL) if each != signal):
            raise ConfigError(
                "algorithm_args.then: its head would hide this one; go on with another algorithm"
            )
        return signal

    def _drawn(self, request: Request) -> bool:
        return request.draw(STREAM) < self.threshold

    def _scored(self, text: str) -> bool:
        return self.routellm is not None and self.routellm.score(text) >= self.threshold


def _inner(members: Sequence[str], then: object) -> RoutingScheduler:
    field = "algorithm_args.then"
    if then is None:
        return Single(members)
    if not isinstance(then, Mapping) or not {"algorithm"} <= {*then} <= {*_KEYS}:
        raise ConfigError(f"{field}: give {{{', '.join(_KEYS)}}}, got {then!r}")
    name, threshold, args = (then.get(key) for key in _KEYS)
    if not isinstance(name, str) or not isinstance(args or {}, Mapping):
        raise ConfigError(
            f"{field}: algorithm must be a name and algorithm_args a mapping, got {then!r}"
        )
    try:
        inner = registry.create(name, members, threshold, args)
    except ConfigError as error:
        raise ConfigError(f"{field}: {error}") from error
    if isinstance(inner, Query):
        raise ConfigError(f"{field}: one choice of a model cannot follow another; leave it out")
    return inner


_KEYS = ("algorithm", "router_threshold", "algorithm_args")


def _check_arguments(
    kind: object,
    router_threshold: float | None,
    head: str | None,
    router: str | None,
    router_args: Mapping[str, Any] | None,
) -> None:
    if kind not in KINDS:
        raise ConfigError(f"algorithm_args.kind: must be one of {', '.join(KINDS)}, got {kind!r}")
    if (head is not None) != (kind == "head"):
        raise ConfigError("algorithm_args.head: kind head needs the file of one, and no other does")
    if (router is not None) != (kind == "routellm") or (router is None and router_args):
        raise ConfigError(
            "algorithm_args.router: kind routellm needs the name of one (and router_args, if that "
            "takes any), and no other does"
        )
    if kind == "routellm" and router_threshold is None:
        raise ConfigError(
            "router_threshold: kind routellm needs one; RouteLLM calibrates it for a share of calls"
        )
