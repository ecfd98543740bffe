"""Every message on TokenRouter's own links, in the order of a request's life.

front end -> home:       Submit, Abort; to any member: Inspect, Control
home -> member:          Open, HandOver, Close, Live
member -> home:          HandOver, Commit, Blocked, Admitted, Failed
planner -> member:       Inspect, which is answered, and Plan; to the detokenizer: Planned
home -> detokenizer:     Output; from any member: MemberState, Controlled
detokenizer -> front end: Text; and MemberState, Controlled, Planned as they came
rank 0 of a member -> its other ranks:  Admit, Truncate, Release, Feed

Messages travel inside a `Frame`. Members are named by their index in the configuration.
A tagged msgspec union, encoded as msgpack arrays: a frame that does not decode is
counted and dropped by the channel, never applied.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

PROTOCOL_VERSION = 4
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


class Inspect(msgspec.Struct, frozen=True, array_like=True, tag="inspect"):
    """Ask a member for its `MemberState`, which carries the same ``ticket``."""

    ticket: int


LONGEST_TABLE = 4096
"""Rows of the longest plan: a member checks it between two steps."""


class Plan(msgspec.Struct, frozen=True, array_like=True, tag="plan"):
    """Thresholds from now on: ``table[A - 1]`` has one a member, for A live requests.

    Its last row holds for more. No row can deadlock its A, and none is above a later one in
    any member's column: then members that count different A are safe together. ``version``
    grows with every plan of the deployment; ``reason``, in words, for operators.
    """

    version: int
    table: list[tuple[int, ...]]
    reason: str


class Planned(msgspec.Struct, frozen=True, array_like=True, tag="planned"):
    """What the planner has decided, for operators.

    ``table``: as in `Plan` (empty: none yet); ``version`` of the plan. ``changes``: tables
    since it started. ``concurrency``: A for which the table was solved. ``gain``: throughput
    that the model predicts there, over thresholds of 1 (1.0: the same). ``reason``, in words.
    """

    version: int
    table: list[tuple[int, ...]]
    changes: int
    concurrency: int
    gain: float
    reason: str


Action = Literal["flush_cache", "start_profile", "stop_profile", "update_weights_from_disk"]


class Control(msgspec.Struct, frozen=True, array_like=True, tag="control"):
    """Have a member's engine do something between two steps; it answers `Controlled`.

    ``arguments``: those of SGLang's request of the same name.
    """

    ticket: int
    action: Action
    arguments: dict[str, Any]


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
    """The request cannot go on at this member; its home answers the client."""

    uid: int
    message: str
    status: int


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


class Controlled(msgspec.Struct, frozen=True, array_like=True, tag="controlled"):
    """A member's answer to `Control`; ``busy``: it holds requests, and did nothing."""

    ticket: int
    member: int
    success: bool
    message: str
    busy: bool = False


class Buckets(msgspec.Struct, frozen=True, array_like=True):
    """A histogram: ``counts[i]`` observations of at most ``bounds[i]`` and above the bound before.

    The last count is of those above all bounds; ``sum`` is of all observations.
    """

    bounds: tuple[float, ...]
    counts: list[int]
    sum: float


class Counters(msgspec.Struct, frozen=True, array_like=True):
    """What a member has done since it started, and what it holds now, for Prometheus.

    ``waiting`` owned requests that have not started; ``ready`` visits that write here now;
    ``blocked``: those without memory; ``parked`` visits that write elsewhere, with
    ``parked_tokens`` in KV. ``written_tokens`` that its steps kept; ``throughput``: of the
    last seconds, per second; ``admitted_tokens`` at first admissions, of which
    ``cached_tokens`` were in the prefix cache; ``fed_tokens``: computed by steps.
    ``hand_overs[a][b]``: of owned requests, from a to b. In seconds: ``threshold_wait`` from
    ready to launch, ``steps[b]`` of at most b visits (and more than b/2), ``routing`` by hook,
    ``delays`` of frames by link. ``log_lines_dropped``: nobody took them.
    """

    waiting: int
    ready: int
    blocked: int
    parked: int
    parked_tokens: int
    written_tokens: int
    throughput: float
    admitted_tokens: int
    cached_tokens: int
    fed_tokens: int
    hand_overs: dict[int, dict[int, int]]
    threshold_wait: Buckets
    steps: dict[int, Buckets]
    routing: dict[str, Buckets]
    delays: dict[str, Buckets]
    log_lines_dropped: int


class StepSums(msgspec.Struct, frozen=True, array_like=True):
    """Sums over steps of one batch size, for the latency law.

    ``seconds`` of each: from its launch to the time when the next could be launched.
    ``tokens`` that each fed.
    """

    count: int
    seconds: float
    seconds_squared: float
    tokens: int
    tokens_squared: int
    tokens_seconds: float


class Measurements(msgspec.Struct, frozen=True, array_like=True):
    """What the throughput model needs to know of a member; sums since it started.

    Only requests that may visit every member count in ``hops``, ``runs`` and ``live_seconds``.

    ``at``: the member's clock. ``steps[b]`` of b visits, all ready; ``prefill`` of those that
    fed prompts; ``profile[b]``: of steps measured before it served. ``hops[k]``: [steps here
    after which a request went to k, tokens they kept]. ``runs[n]``: how often a request left
    after n steps here in a row. ``live_seconds``: integral of A over time.
    """

    at: float
    steps: dict[int, StepSums]
    prefill: StepSums
    profile: dict[int, StepSums]
    hops: dict[int, tuple[int, int]]
    runs: dict[int, int]
    live_seconds: float


class MemberState(msgspec.Struct, frozen=True, array_like=True, tag="member_state"):
    """What a member holds and has done, for operators and tests.

    ``visits`` here now, ``requests`` owned; ``live``: A of the clamp rule; ``threshold``:
    in force now; ``batches[b]``: steps of b visits so far; ``step_ms``: mean step time;
    ``expired_waits``: launches that only the maximum wait caused; ``evictions``: visits
    that lost their KV to an older one; ``stale``: late messages, ignored; ``dropped``:
    bad frames by kind. ``counters``: the rest, for Prometheus. ``measurements``: what the
    planner asks for. ``plan``: version of the thresholds in force (0: the configuration's).
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
    counters: Counters | None = None
    measurements: Measurements | None = None
    plan: int = 0


class Admit(msgspec.Struct, frozen=True, array_like=True, tag="admit"):
    """The engine of rank 0 gave a visit a slot and ``len(tokens) - 1`` cached tokens.

    ``tokens``: those, and the one after them.
    """

    uid: int
    tokens: list[int]


class Share(msgspec.Struct, frozen=True, array_like=True, tag="share"):
    """Other visits may find the KV of the visit's first ``length`` tokens."""

    uid: int
    length: int


class Truncate(msgspec.Struct, frozen=True, array_like=True, tag="truncate"):
    """The visit's KV from position ``length`` on is free."""

    uid: int
    length: int


class Release(msgspec.Struct, frozen=True, array_like=True, tag="release"):
    """Everything the visit held is free."""

    uid: int


class Feed(msgspec.Struct, frozen=True, array_like=True, tag="feed"):
    """Rank 0 begins a step: (uid, tokens that it feeds) of each row, in order.

    ``digest`` stands for all batches before this one, as rank 0 built them. ``checked``: after
    which tokens, counted over all rows, logits are computed beside those after each row.
    """

    rows: list[tuple[int, list[int]]]
    digest: int
    checked: list[int] = []


ToRank = Admit | Share | Truncate | Release | Feed
"""Calls of a tensor-parallel member's engine, in the order in which rank 0 made them."""
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
