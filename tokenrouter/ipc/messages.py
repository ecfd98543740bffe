"""The protocol of TokenRouter's own links; here, the messages of a request's life, in order.

front end -> home:       Submit, Abort; to any member: Inspect, Control
home -> member:          Open, HandOver, Close, Live
member -> home:          HandOver, Commit, Blocked, Admitted, Failed
planner -> member:       Inspect, which is answered, and Plan; to the detokenizer: Planned
home -> detokenizer:     Output; from any member: MemberState, Controlled
detokenizer -> front end: Text; and MemberState, Controlled, Planned as they came
rank 0 of a member -> its other ranks:  Admit, Share, Truncate, Release, Feed

Messages travel inside a `Frame`. Members are named by their index in the configuration. Those
that are not about one request are in `operations`, `member_state` and `rank_calls`.
A tagged msgspec union, encoded as msgpack arrays: a frame that does not decode is
counted and dropped by the channel, never applied.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tokenrouter.ipc.member_state import MemberState
from tokenrouter.ipc.operations import Control, Controlled, Inspect, Plan, Planned
from tokenrouter.ipc.rank_calls import ToRank

PROTOCOL_VERSION = 5
FRONT_END = -1
DETOKENIZER = -2
SUPERVISOR = -3
PLANNER = -4
"""Indices of the processes that are not members, as senders and as who died or came back."""


class Grammar(msgspec.Struct, frozen=True, array_like=True):
    """What the output must look like; ``text`` in the notation that ``kind`` names.

    ``calls``: a tool call. JSON, ``{calls: [{begin, schema, end, field}], separator}``: one of
    them, or (``separator`` is not null) one or more. Or ``{ebnf, alone: [{field, ebnf}]}``: what
    ``ebnf`` says, which each of ``alone`` must also be able to. ``field`` is named in errors.
    """

    kind: Literal["json_schema", "regex", "ebnf", "structural_tag", "calls"]
    text: str


class Sampling(msgspec.Struct, frozen=True, array_like=True):
    """How tokens of one request are drawn and where it ends (normalised as SGLang does).

    ``top_k = 1`` means greedy. ``stop_token_ids`` add to the EOS ids unless ``ignore_eos``.
    ``min_new_tokens``: neither kind of id is written before so many output tokens.
    Penalties are OpenAI's (over output tokens) and Hugging Face's ``repetition_penalty``
    (over prompt and output). ``seed``: draws depend on it and on the position only; None:
    they are the engine's. ``logprobs``: None, or how many alternatives to report for each
    output token besides its own.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    no_stop_trim: bool = False
    min_new_tokens: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    grammar: Grammar | None = None
    logprobs: int | None = None


class Logprob(msgspec.Struct, frozen=True, array_like=True):
    """Natural-log probability of a written token, by the member that wrote it.

    ``top``: the most probable ids with theirs, most probable first.
    """

    logprob: float
    top: list[tuple[int, float]]


class Route(msgspec.Struct, frozen=True, array_like=True):
    """Which algorithm serves a request, and where.

    ``members`` are the members it may visit; ``home`` is one of them. ``sample`` is the
    index among the ``n`` samples of one prompt. ``args`` holds plain YAML values. ``preset``:
    what the request calls the algorithm; None: it names none.
    """

    algorithm: str
    members: tuple[int, ...]
    home: int
    router_threshold: float | None = None
    args: dict[str, Any] = {}
    seed: int = 0
    sample: int = 0
    token_models: bool = False
    preset: str | None = None


class Submit(msgspec.Struct, frozen=True, array_like=True, tag="submit"):
    """A validated, tokenised request for its home. ``uid`` orders requests by age."""

    uid: int
    rid: str
    prompt: list[int]
    sampling: Sampling
    route: Route
    stream: bool


class Abort(msgspec.Struct, frozen=True, array_like=True, tag="abort"):
    """The client gave up (or an operator did); unknown uids are ignored."""

    uid: int


class Open(msgspec.Struct, frozen=True, array_like=True, tag="open"):
    """Begin a visit. It may compute the prompt early (``eager``), without control."""

    uid: int
    prompt: list[int]
    sampling: Sampling
    route: Route
    eager: bool


class HandOver(msgspec.Struct, frozen=True, array_like=True, tag="hand_over"):
    """Control moves to ``to``, through the home.

    The receiver's tokens become ``known[:start] + tokens``, positions counted from the
    first prompt token; the last ``drafts`` of them are not final. ``epoch`` is the hand-over
    the sender acts under. ``payload`` is what the algorithm's ``send`` returned.
    ``logprobs``, on the way to the home only and for requests that asked: as in `Commit`.
    """

    uid: int
    epoch: int
    start: int
    tokens: list[int]
    to: int
    payload: bytes = b""
    logprobs: list[Logprob] | None = None
    drafts: int = 0


class Commit(msgspec.Struct, frozen=True, array_like=True, tag="commit"):
    """The output becomes ``known[:start] + tokens``, of which the last ``drafts`` are not final.

    The sender, which wrote them, keeps control. ``logprobs``, if the request asked: of the
    last so many tokens, of which there may be more than ``tokens``: what is known by then of
    drafts that stay.
    """

    uid: int
    epoch: int
    start: int
    tokens: list[int]
    logprobs: list[Logprob] | None = None
    drafts: int = 0


class Close(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    """End a visit and free all it holds."""

    uid: int


class Live(msgspec.Struct, frozen=True, array_like=True, tag="live"):
    """What the sender's home owns.

    ``requests``: those that may visit every member and are not blocked (its part of A);
    ``owned``: all that have started; ``tokens``: the sum of their lengths. ``step_s``: the
    sender's longest step (`subserver/longest.py`); 0: not known.
    """

    requests: int
    owned: int
    tokens: int
    step_s: float = 0.0


class Blocked(msgspec.Struct, frozen=True, array_like=True, tag="blocked"):
    """The visit has control but cannot get KV memory: it no longer counts as live."""

    uid: int


class Admitted(msgspec.Struct, frozen=True, array_like=True, tag="admitted"):
    """A blocked visit got its memory."""

    uid: int


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """The request cannot go on at this member; its home answers the client.

    ``field``: what of the request is wrong, if anything is, as a member knows it: ``algorithm``,
    or the kind of its grammar.
    """

    uid: int
    message: str
    status: int
    field: str | None = None


class Output(msgspec.Struct, frozen=True, array_like=True, tag="output"):
    """New output of one request, for the detokenizer.

    ``context``: the last prompt ids, sent once, so that the first token is decoded in
    context. ``finish``: SGLang's JSON finish reason, set on the last output only.
    ``token_models``: the member of each of ``tokens``, and ``logprobs`` of each, if the
    client asked for them. ``started``, ``first_token``: when it left the queue, and when its
    first token was written, on the host's monotonic clock (0: not yet).
    """

    rid: str
    tokens: list[int]
    context: list[int] | None
    finish: dict[str, Any] | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    member_tokens: list[int]
    hand_overs: int
    token_models: list[int] | None
    skip_special_tokens: bool
    spaces_between_special_tokens: bool
    no_stop_trim: bool
    logprobs: list[Logprob] | None = None
    started: float = 0.0
    first_token: float = 0.0


class Text(msgspec.Struct, frozen=True, array_like=True, tag="text"):
    """An `Output`, decoded: what follows in one request's answer, or ends it.

    ``text`` follows what was sent before. ``text_length``: length of the answer's text so
    far; it shrinks where a stop string turns out to have begun in text already sent.
    """

    rid: str
    text: str
    text_length: int
    tokens: list[int]
    finish: dict[str, Any] | None
    prompt_tokens: int
    cached_tokens: int
    member_tokens: list[int]
    hand_overs: int
    token_models: list[int] | None = None
    logprobs: list[Logprob] | None = None
    started: float = 0.0
    first_token: float = 0.0


Message = (
    Submit
    | Abort
    | Inspect
    | Plan
    | Planned
    | Control
    | Open
    | HandOver
    | Commit
    | Close
    | Live
    | Blocked
    | Admitted
    | Failed
    | Output
    | Text
    | MemberState
    | Controlled
    | ToRank
)


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What every version of a `Frame` begins with."""

    version: int


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """Everything one process tells another in one iteration of its loop.

    ``generation`` counts the starts of the sender, ``to_generation`` those of the
    receiver; ``sequence`` grows by one per frame of a link. ``sent``: the host's monotonic
    clock when the frame left, in seconds.
    """

    version: int
    sender: int
    generation: int
    to_generation: int
    sequence: int
    sent: float
    messages: list[Message]
