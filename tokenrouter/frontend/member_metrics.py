"""The state of members as Prometheus metrics, with SGLang's names where it has the same thing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from prometheus_client.core import Metric

from tokenrouter.config import Config
from tokenrouter.frontend.families import Families
from tokenrouter.ipc.member_state import Buckets, Counters, MemberState


def member_metrics(config: Config, states: Sequence[MemberState | None]) -> Iterable[Metric]:
    """Metrics of every member that answered."""
    families = Families("model_name", "member")
    for name, state in zip(config.names, states, strict=True):
        if state is not None and state.counters is not None:
            labels = (config.served_name, name)
            _now(families, labels, state, state.counters)
            _tokens(families, labels, state.counters)
            _steps(families, labels, state, state.counters)
            _messages(families, labels, state, state.counters, config.names)
    return families


def _now(families: Families, labels: Sequence[str], state: MemberState, more: Counters) -> None:
    used = state.pool_tokens - state.free_tokens
    for name, text, value in (
        ("num_running_reqs", "Requests that this member writes now.", more.ready),
        ("num_queue_reqs", "Requests of this home that have not started.", more.waiting),
        ("num_parked_reqs", "Requests here that another member writes now.", more.parked),
        ("num_blocked_reqs", "Those that wait for memory.", more.blocked),
        ("num_owned_reqs", "Requests whose home this member is.", state.requests),
        ("num_live_reqs", "A of the threshold's clamp rule, as this member knows it.", state.live),
        ("threshold", "Ready requests that start a step; 1 if none is live.", state.threshold),
        ("plan_version", "Version of the planned thresholds in force; 0: none.", state.plan),
        ("num_used_tokens", "KV tokens in use.", used),
        ("max_total_num_tokens", "KV tokens that the pool holds.", state.pool_tokens),
        ("num_parked_tokens", "KV tokens of parked requests.", more.parked_tokens),
        ("token_usage", "Share of the KV pool in use.", used / state.pool_tokens),
        ("gen_throughput", "Tokens written per second, over the last seconds.", more.throughput),
        ("cache_hit_rate", "Share of tokens of first visits found in the prefix cache.",
         more.cached_tokens / max(more.admitted_tokens, 1)),
    ):  # fmt: skip
        families.gauge(name, text, labels, value)


def _tokens(families: Families, labels: Sequence[str], more: Counters) -> None:
    for name, text, value in (
        ("written_tokens", "Tokens of this member's steps that were kept.", more.written_tokens),
        ("computed_tokens", "Tokens that steps put into KV.", more.fed_tokens),
        ("admitted_tokens", "Tokens of requests when they first came here.", more.admitted_tokens),
        ("admitted_cached_tokens", "Those found in the prefix cache.", more.cached_tokens),
    ):  # fmt: skip
        families.counter(name, text, labels, value)


def _steps(families: Families, labels: Sequence[str], state: MemberState, more: Counters) -> None:
    families.histogram("batch_size", "Requests in a step.", labels, batch_sizes(state.batches))
    for size, times in sorted(more.steps.items()):
        text = "Time of a step of at most this many requests, and more than half of it."
        families.histogram("step_seconds", text, labels, times, batch=str(size))
    text = "Time from ready to launch."
    families.histogram("threshold_wait_seconds", text, labels, more.threshold_wait)
    for hook, times in more.routing.items():
        text = "Time in a hook of the algorithm, for one request."
        families.histogram("routing_seconds", text, labels, times, hook=hook)
    text = "Launches that only the maximum wait caused."
    families.counter("expired_waits", text, labels, state.expired_waits)
    text = "Requests that lost their KV to an older one."
    families.counter("evictions", text, labels, state.evictions)


def _messages(
    families: Families,
    labels: Sequence[str],
    state: MemberState,
    more: Counters,
    names: Sequence[str],
) -> None:
    for giver, receivers in more.hand_overs.items():
        for receiver, count in receivers.items():
            ends = {"from": names[giver], "to": names[receiver]}
            text = "Hand-overs of control, counted by the request's home (member)."
            families.counter("hand_overs", text, labels, count, **ends)
    for link, times in more.delays.items():
        text = "Time from a frame's departure to its receipt between two steps."
        families.histogram("message_delay_seconds", text, labels, times, link=link)
    text = "Messages that came too late, after an abort, and were ignored."
    families.counter("stale_messages", text, labels, state.stale)


def batch_sizes(batches: dict[int, int]) -> Buckets:
    """Steps by batch size, with powers of two as bounds."""
    powers: Counter[int] = Counter()
    for size, count in batches.items():
        powers[(size - 1).bit_length()] += count
    exponents = range(max((8, *powers)) + 1)
    return Buckets(
        tuple(float(1 << exponent) for exponent in exponents),
        [*(powers[exponent] for exponent in exponents), 0],
        float(sum(size * count for size, count in batches.items())),
    )
