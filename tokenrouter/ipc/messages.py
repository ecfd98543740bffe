"""Every message on TokenRouter's own links, in the order of a request's life.

front end -> home:       Submit, Abort; to any member: Inspect
home -> member:          Open, HandOver, Close, Live
member -> home:          HandOver, Commit, Blocked, Admitted, Failed
home -> detokenizer:     Output; from any member: MemberState

Messages travel inside a `Frame`. Members are named by their index in the configuration.
A tagged msgspec union, encoded as msgpack arrays: a frame that does not decode is
counted and dropped by the channel, never applied.
"""

from __future__ import annotations

from typing import Any

import msgspec

PROTOCOL_VERSION = 1
FRONT_END = -1
"""The sender index of the front end, which is not a member."""


class Sampling(msgspec.Struct, frozen=True, array_like=True):
    """How tokens of one request are drawn and where it ends (normalised as SGLang does).

    ``top_k = 1`` means greedy. ``stop_token_ids`` add to the EOS ids unless ``ignore_eos``.
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


class Route(msgspec.Struct, frozen=True, array_like=True):
    """Which algorithm serves a request, and where.

    ``members`` are the members it may visit; ``home`` is one of them. ``sample`` is the
    index among the ``n`` samples of one prompt. ``args`` holds plain YAML values.
    """

    algorithm: str
    members: tuple[int, ...]
    home: int
    router_threshold: float | None = None
    args: dict[str, Any] = {}
    seed: int = 0
    sample: int = 0
    token_models: bool = False


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


class Inspect(msgspec.Struct, frozen=True, array_like=True, tag="inspect"):
    """Ask a member for its `MemberState`, which carries the same ``ticket``."""

    ticket: int


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
    first prompt token. ``epoch`` is the hand-over the sender acts under. ``payload`` is
    what the algorithm's ``send`` returned.
    """

    uid: int
    epoch: int
    start: int
    tokens: list[int]
    to: int
    payload: bytes = b""


class Commit(msgspec.Struct, frozen=True, array_like=True, tag="commit"):
    """Tokens written by a member that keeps control."""

    uid: int
    epoch: int
    start: int
    tokens: list[int]


class Close(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    """End a visit and free all it holds."""

    uid: int


class Live(msgspec.Struct, frozen=True, array_like=True, tag="live"):
    """What the sender's home owns.

    ``requests``: those that may visit every member and are not blocked (its part of A);
    ``owned``: all that have started; ``tokens``: the sum of their lengths.
    """

    requests: int
    owned: int
    tokens: int


class Blocked(msgspec.Struct, frozen=True, array_like=True, tag="blocked"):
    """The visit has control but cannot get KV memory: it no longer counts as live."""

    uid: int


class Admitted(msgspec.Struct, frozen=True, array_like=True, tag="admitted"):
    """A blocked visit got its memory."""

    uid: int


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """The request cannot go on at this member; its home answers the client."""

    uid: int
    message: str
    status: int


class Output(msgspec.Struct, frozen=True, array_like=True, tag="output"):
    """New output of one request, for the detokenizer.

    ``context``: the last prompt ids, sent once, so that the first token is decoded in
    context. ``finish``: SGLang's JSON finish reason, set on the last output only.
    ``token_models``: the member of each of ``tokens``, if the client asked for it.
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


class MemberState(msgspec.Struct, frozen=True, array_like=True, tag="member_state"):
    """What a member holds and has done, for operators and tests.

    ``visits`` here now, ``requests`` owned; ``live``: A of the clamp rule; ``threshold``:
    in force now; ``batches[b]``: steps of b visits so far; ``step_ms``: mean step time;
    ``expired_waits``: launches that only the maximum wait caused; ``evictions``: visits
    that lost their KV to an older one; ``stale``: late messages, ignored; ``dropped``:
    bad frames by kind.
    """

    ticket: int
    member: int
    visits: int
    requests: int
    live: int
    threshold: int
    free_tokens: int
    pool_tokens: int
    batches: dict[int, int]
    step_ms: float
    expired_waits: int
    evictions: int
    stale: int
    dropped: dict[str, int]


Message = (
    Submit
    | Abort
    | Inspect
    | Open
    | HandOver
    | Commit
    | Close
    | Live
    | Blocked
    | Admitted
    | Failed
    | Output
    | MemberState
)


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """Everything one process tells another in one iteration of its loop.

    ``generation`` counts the starts of the sender, ``to_generation`` those of the
    receiver; ``sequence`` grows by one per frame of a link.
    """

    version: int
    sender: int
    generation: int
    to_generation: int
    sequence: int
    messages: list[Message]
