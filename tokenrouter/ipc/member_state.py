"""What a member tells of itself: for operators, for Prometheus, and for the throughput model.

Part of the protocol of `messages`.
"""

from __future__ import annotations

import msgspec


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
