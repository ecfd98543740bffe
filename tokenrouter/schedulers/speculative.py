"""Speculative decoding: the small model drafts tokens, the large one checks them in one pass."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast, get_args

from tokenrouter.errors import ConfigError, RequestError
from tokenrouter.schedulers.arguments import choice, flag, number, whole_number
from tokenrouter.schedulers.base import Check, Decision, Proposal, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import Acceptance, Checks, Declared, Proposals, Rule

if TYPE_CHECKING:
    from tokenrouter.ipc.messages import Sampling

SMALL, LARGE = 0, 1
MAX_PAYLOAD_BYTES = 64 * 1024
HEAD = struct.Struct("<If")
"""Of a proposal on its way: how many ids, and its ``top``; 12 bytes for each id follow."""
PRIOR_ACCEPTED, PRIOR_TESTED = 4.0, 5.0
"""What adaptive lengths take for measured before anything is."""
MEMORY = 0.9
"""Weight of a round in the measured acceptance, relative to the next one."""


@dataclass
class Drafting:
    """The small model's state: how many tokens to draft, and the laws of those so far."""

    length: int
    proposals: list[Proposal] = field(default_factory=list)


@dataclass
class Checking:
    """The large model's state: drafts it accepted, of those that it tested, with fading memory."""

    accepted: float = PRIOR_ACCEPTED
    tested: float = PRIOR_TESTED


class Speculative(RoutingScheduler):
    """Leviathan et al. (arXiv 2211.17192); cascade rules: Narasimhan et al. (2405.19261).

    The small model drafts up to ``draft_length`` tokens, or to one that would end the output.
    The large one keeps those before the first that its ``rule`` rejects, and replaces that.
    After a full round the ``exact`` rule gives one token more; the others, whose law at that
    place also depends on what the small model would draft, give none. With temperature 0 laws
    are certain: the exact rule keeps drafts that are the large model's choice.

    ``router_threshold`` is alpha of the cascade rules, which see `signals.Acceptance`; the exact
    rule has none.

    Args:
        rule: exact, chow, diff, opt, token_v1, token_v2 or token_v3.
        draft_top_k: drafts are drawn from so many of the likeliest tokens; all that the
            large model is told about their law.
        adaptive: draft as many tokens, up to ``draft_length``, as promise the most per time
            (see `best_length`) at the request's own acceptance.
        step_ratio: how long a step of the small model takes, in steps of the large one, for
            adaptive lengths.
    """

    members_needed = 2
    threshold_range = (0.0, 1.0)
    drafts = True

    def __init__(
        self,
        members: Sequence[str],
        router_threshold: float | None = None,
        rule: Rule = "exact",
        draft_length: int = 4,
        draft_top_k: int = 128,
        adaptive: bool = False,
        step_ratio: float = 0.2,
    ) -> None:
        super().__init__(members, router_threshold)
        self.rule = _rule(rule, router_threshold)
        self.draft_length = whole_number("draft_length", draft_length, 1)
        self.draft_top_k = whole_number("draft_top_k", draft_top_k, 1)
        _check_size(self.draft_length, self.draft_top_k)
        self.adaptive = flag("adaptive", adaptive)
        self.step_ratio = number("step_ratio", step_ratio, 0.0)

    @property
    def bonus(self) -> bool:
        """Whether the large model adds a token of its own where all drafts stay."""
        return self.rule.kind == "exact"

    def check(self, sampling: Sampling, vocabulary_size: int) -> None:
        """A cascade rule mixes in the small model's whole law, which must fit into a message."""
        drawn_from = min(sampling.top_k, vocabulary_size)
        if not self.bonus and drawn_from > self.draft_top_k:
            given = "none" if sampling.top_k >= vocabulary_size else sampling.top_k
            raise RequestError(
                f"top_k: rule {self.rule.kind} of speculative needs one from 1 to "
                f"{self.draft_top_k} (draft_top_k), or temperature 0, got {given}",
                "top_k",
            )

    def signals(self, member: int) -> Collection[Declared]:
        """The laws of drafts; and their checks, whose log probabilities are the answer's."""
        if member == SMALL:
            return (Proposals(self.draft_top_k),)
        return (Checks(as_own=True, rule=self.rule),)

    def start(self, request: Request) -> Drafting | Checking:
        """Nothing is drafted, nothing measured."""
        return Checking() if request.member == LARGE else Drafting(self._length(Checking()))

    def route(self, request: Request, step: Step) -> Decision:
        """Draft on, or hand over; check, and hand back."""
        if request.member == LARGE:
            return self._verdict(request.state, step.checks)
        state: Drafting = request.state
        state.proposals.append(step.signals["proposals"])
        drafts = request.drafts + 1
        done = step.ends or drafts >= state.length
        return Decision(1, LARGE if done else SMALL, drafts=drafts)

    def send(self, request: Request, step: Step, decision: Decision) -> bytes:
        """The laws of the drafts; the other way, how many to draft next."""
        if request.member == SMALL:
            return b"".join(map(pack, request.state.proposals))
        return struct.pack("<I", self._length(request.state))

    def receive(self, request: Request, payload: bytes) -> None:
        """What `send` sent; at first, the home gets nothing."""
        if request.member == LARGE:
            request.proposals = unpack(payload)
        elif payload:
            (length,) = struct.unpack("<I", payload)
            request.state = Drafting(length)

    def _verdict(self, state: Checking, checks: Sequence[Check]) -> Decision:
        stay = next((i for i, check in enumerate(checks) if not check.accepted), len(checks))
        # Drafts after a rejected one were not tested: nothing follows from what they would be.
        state.accepted = state.accepted * MEMORY + stay
        state.tested = state.tested * MEMORY + min(stay + 1, len(checks))
        if stay == len(checks):
            return Decision(int(self.bonus), SMALL)
        return Decision(1, SMALL, cut=len(checks) - stay)

    def _length(self, state: Checking) -> int:
        if not self.adaptive:
            return self.draft_length
        acceptance = state.accepted / state.tested
        return best_length(acceptance, self.step_ratio, self.draft_length, self.bonus)


def best_length(acceptance: float, step_ratio: float, longest: int, bonus: bool) -> int:
    """How many tokens to draft, at most ``longest``, for the most tokens per time.

    A round of g drafts of which each stays with probability a writes ``1 + a + ... + a^g`` tokens
    (without a bonus ``1 + ... + a^(g-1)``) in the time of ``g step_ratio + 1`` steps of the large
    model: equations 1 and theorem 3.8 of arXiv 2211.17192.
    """
    best, best_rate = 1, 0.0
    tokens, power = float(bonus), 1.0
    for length in range(1, longest + 1):
        tokens += power * acceptance if bonus else power
        power *= acceptance
        rate = tokens / (length * step_ratio + 1)
        if rate > best_rate:
            best, best_rate = length, rate
    return best


def pack(proposal: Proposal) -> bytes:
    """For `unpack`; probabilities become float32, which they are where they come from."""
    ids, law, raw = proposal.ids, proposal.probabilities, proposal.raw
    columns = (array("I", ids).tobytes(), array("f", law).tobytes(), array("f", raw).tobytes())
    return b"".join((HEAD.pack(len(ids), proposal.top), *columns))


def unpack(payload: bytes) -> list[Proposal]:
    """What `pack` made, one after the other."""
    proposals: list[Proposal] = []
    start = 0
    while start < len(payload):
        count, top = HEAD.unpack_from(payload, start)
        start += HEAD.size
        ids, probabilities, raw = array("I"), array("f"), array("f")
        for column in (ids, probabilities, raw):
            column.frombytes(payload[start : start + 4 * count])
            start += 4 * count
        proposals.append(Proposal(ids, probabilities, raw, top))
    return proposals


def _rule(kind: str, alpha: float | None) -> Acceptance:
    rule = cast(Rule, choice("rule", kind, get_args(Rule)))
    if rule == "exact" and alpha is not None:
        raise ConfigError(
            "router_threshold: the exact rule of speculative has none; leave it out, or set "
            "algorithm_args.rule to a cascade rule, whose alpha it is"
        )
    if rule != "exact" and alpha is None:
        raise ConfigError(
            f"router_threshold: rule {rule} of speculative needs one: alpha, from 0 to 1"
        )
    return Acceptance(rule, alpha or 0.0)


def _check_size(length: int, top_k: int) -> None:
    size = length * (HEAD.size + 12 * top_k)
    if size > MAX_PAYLOAD_BYTES:
        fits = max((MAX_PAYLOAD_BYTES // length - HEAD.size) // 12, 0)
        raise ConfigError(
            f"algorithm_args.draft_top_k: {length} drafts of {top_k} probabilities are {size} "
            f"bytes, above the limit of {MAX_PAYLOAD_BYTES}; at most {fits} fit"
        )
