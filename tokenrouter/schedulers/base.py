"""The interface of a routing algorithm: three hooks that follow ONE request.

    route    after a step of this request: which tokens to commit, which member goes on
    send     what travels with the request when it leaves this member
    receive  what to do with what arrived

One instance serves all requests with the same algorithm and arguments on one member;
what belongs to a request is kept in ``request.state``, per (request, member). Hooks never
see a batch, a socket or a KV slot. They run once per step of a request, on the loop's
critical path: keep them short, and never block.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.signals import Declared

if TYPE_CHECKING:
    from tokenrouter.ipc.messages import Sampling


@dataclass(slots=True)
class Request:
    """What an algorithm sees of a request, on one member.

    ``tokens`` is the prompt followed by the committed output as this member knows it;
    read it, never change it. The last ``drafts`` of them are not final: see `Decision`.
    ``state`` starts as what `RoutingScheduler.start` returned.

    `RoutingScheduler.receive` may set two more. ``scratch``: ids that the next step reads
    after ``tokens`` and then forgets; they are never output. ``proposals``: the laws from which
    the drafts were drawn, oldest first, for a `signals.Checks` with a rule.
    """

    tokens: Sequence[int]
    prompt_length: int
    member: int
    seed: int = 0
    sample: int = 0
    state: Any = None
    drafts: int = 0
    scratch: Sequence[int] = ()
    proposals: Sequence[Proposal] = ()
    _prefix: bytes = field(default=b"", repr=False)

    @property
    def position(self) -> int:
        """Output tokens committed so far: the index of the token a step proposes."""
        return len(self.tokens) - self.prompt_length

    def draw(self, stream: int = 0, position: int | None = None) -> float:
        """A uniform number in [0, 1) that depends on nothing but what is being decided.

        The first 53 bits of BLAKE2b over (seed, prompt ids, sample index, position,
        ``stream``): the same whatever the batch, the member or the request's id. Use
        different ``stream`` numbers for different draws at one position. ``position``:
        that of another output token than the next one.
        """
        if position is None:
            position = self.position
        if not self._prefix:
            prompt = self.tokens[: self.prompt_length]
            packed = struct.pack(f"<{len(prompt)}q", *prompt)
            self._prefix = hashlib.blake2b(packed, digest_size=16).digest()
        key = struct.pack("<qqqq", self.seed, self.sample, position, stream)
        digest = hashlib.blake2b(self._prefix + key, digest_size=8).digest()
        return float(int.from_bytes(digest, "little") >> 11) * 2.0**-53


class Proposal(msgspec.Struct, frozen=True, array_like=True):
    """The law from which a draft was drawn: ``probabilities[i]`` of token ``ids[i]``; they sum
    to one. Of the raw logits there, the softmax gives ``raw[i]`` to them, and at most ``top``.
    """

    ids: Sequence[int]
    probabilities: Sequence[float]
    raw: Sequence[float]
    top: float


class Check(msgspec.Struct, frozen=True):
    """What a member that was handed a draft makes of it.

    ``token``: what this member writes in its place, if it is taken back. ``probability`` of
    the draft: the softmax of this member's raw logits there. ``accepted``: by the rule of
    `signals.Checks`; without one, whether the draft is ``token``.
    """

    token: int
    probability: float
    accepted: bool


class Step(msgspec.Struct, frozen=True):
    """What one step of a request gave: proposed tokens and the declared signals.

    ``checks``: of each draft, oldest first, at the first step after a member that declares
    `signals.Checks` was handed some. ``ends``: whether the first of ``tokens`` would end the
    output (an end of sequence, a stop string, the length), for algorithms that draft.
    ``scratch``: the step read `Request.scratch`; what it gave belongs there, and is no output.
    """

    tokens: Sequence[int]
    signals: Mapping[str, Any]
    checks: Sequence[Check] = ()
    ends: bool = False
    scratch: bool = False


class Decision(msgspec.Struct, frozen=True):
    """Take back the last ``cut`` drafts, commit ``keep`` tokens; member ``to`` goes on.

    The tokens are the first of the step; after a ``cut``, it is what this member writes in the
    place of the first draft taken back (its `Check.token`). What is not kept is dropped: the
    member that goes on writes at that position.

    Afterwards the last ``drafts`` tokens of the output are drafts: they may be taken back, are
    not streamed, and end nothing. All tokens before them are final.
    """

    keep: int
    to: int
    cut: int = 0
    drafts: int = 0


class Vocabulary(Protocol):
    """Between text and token ids."""

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, without marks of beginning or end."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, special tokens included."""


class RoutingScheduler:
    """Base of every algorithm. Override `route`; the rest has defaults.

    Members are numbered in the order of the configuration; a request starts on its home.
    ``members_needed`` is how many members the algorithm is for (None: any number >= 1).

    Args:
        members: names of all members, in order.
        router_threshold: the deployment's, or the request's own (``NAME@THRESHOLD``).
    """

    members_needed: ClassVar[int | None] = None
    threshold_range: ClassVar[tuple[float, float]] = (float("-inf"), float("inf"))
    """Legal values of ``router_threshold``; anything else is refused before routing."""
    verifiable: ClassVar[bool] = True
    """Whether ``algorithm_args.verify`` makes sense of it (`hindsight`), if it never drafts."""

    # The next three are the class's, or an instance's where its arguments decide.
    drafts = False
    """Whether it ever decides on drafts (`Decision.drafts`)."""
    scratch_tokens = 0
    """The longest legal `Request.scratch`: the front end leaves room for it on every member."""
    chooses_members = False
    """Whether `choose_members` is asked."""

    vocabulary: Vocabulary
    """Set on members, before any request is served there; `signals` may be asked sooner."""

    def __init__(self, members: Sequence[str], router_threshold: float | None = None) -> None:
        self.check_setting(type(self).__name__, members, router_threshold)
        self.members = tuple(members)
        self.router_threshold = router_threshold

    @classmethod
    def check_setting(
        cls, name: str, members: Sequence[str], router_threshold: float | None
    ) -> None:
        """Make sure that the algorithm, which is called ``name`` here, is for these.

        Raises:
            ConfigError: it is for another number of members, the threshold is out of range,
                or there is no range.
        """
        if cls.members_needed is not None and len(members) != cls.members_needed:
            raise ConfigError(
                f"algorithm: {name} routes between {cls.members_needed} models, "
                f"and {len(members)} are configured ({', '.join(members)})"
            )
        try:
            low, high = map(float, cls.threshold_range)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"algorithm: {name}: threshold_range must be the lowest and the highest legal "
                f"router threshold, such as (0.0, 1.0), got {cls.threshold_range!r}"
            ) from error
        if router_threshold is not None and not low <= router_threshold <= high:
            raise ConfigError(
                f"router_threshold: {name} takes router thresholds from {low:g} "
                f"to {high:g}, got {router_threshold!r}"
            )

    def check(self, sampling: Sampling, vocabulary_size: int) -> None:
        """Refuse a request before it starts anywhere: asked in the front end.

        ``sampling``: how its tokens are to be drawn. ``vocabulary_size``: of the smallest member.

        Raises:
            RequestError: this cannot be had with this algorithm; names the field of ``sampling``.
        """

    def choose_members(self, request: Request, text: str) -> Sequence[int]:
        """Members that a new request may visit: its home first.

        Called in the front end, before the request starts anywhere, in a thread beside others
        of the same instance. ``text``: its last message, or the prompt of a completion.
        """
        return range(len(self.members))

    def signals(self, member: int) -> Collection[Declared]:
        """Signals that `route` wants of a step on ``member``."""
        return ()

    def start(self, request: Request) -> Any:
        """The initial ``request.state`` on one member."""
        return None

    def route(self, request: Request, step: Step) -> Decision:
        """Decide after a step of ``request`` on ``request.member``."""
        raise NotImplementedError(f"{type(self).__name__} must define route")

    def send(self, request: Request, step: Step, decision: Decision) -> bytes:
        """What travels with the request to member ``decision.to`` (at most 64 KiB).

        Called right after `route`, with the same step; the kept tokens are not yet in
        ``request.tokens``.
        """
        return b""

    def receive(self, request: Request, payload: bytes) -> None:
        """``request`` arrived here with the ``payload`` its last member sent.

        May set ``request.scratch`` and ``request.proposals``.
        """
