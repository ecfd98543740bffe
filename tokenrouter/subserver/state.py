"""A member's answer to `Inspect`: what its loop holds and has done, put together.

Asked for by the front end, through `loop.py`, for health checks, operators and Prometheus.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenrouter.ipc.messages import Counters, MemberState
from tokenrouter.processes import logs
from tokenrouter.subserver.engine import Engine
from tokenrouter.subserver.home import Home
from tokenrouter.subserver.links import Links
from tokenrouter.subserver.memory import Memory
from tokenrouter.subserver.stats import Stats
from tokenrouter.subserver.visits import Visits


@dataclass(frozen=True, slots=True)
class Parts:
    """What the loop of one member is made of."""

    member: int
    engine: Engine
    visits: Visits
    memory: Memory
    home: Home
    stats: Stats


def state(ticket: int, parts: Parts, links: Links, threshold: int, now: float) -> MemberState:
    """The answer; ``threshold`` is in force at ``now``."""
    stats, home = parts.stats, parts.home
    return MemberState(
        ticket=ticket,
        member=parts.member,
        visits=len(parts.visits),
        requests=len(home),
        live=home.live_requests,
        threshold=threshold,
        free_tokens=parts.engine.free_tokens(),
        pool_tokens=parts.engine.pool_tokens,
        batches=dict(stats.batches),
        step_ms=stats.step_ms,
        expired_waits=stats.expired_waits,
        evictions=parts.memory.evictions,
        stale=parts.visits.stale + home.stale,
        dropped=links.dropped(),
        counters=_counters(parts, links, now),
    )


def _counters(parts: Parts, links: Links, now: float) -> Counters:
    stats, memory, home = parts.stats, parts.memory, parts.home
    here = [visit for visit in parts.visits if visit.control]
    away = [visit for visit in parts.visits if not visit.control]
    blocked = sum(visit.blocked for visit in here)
    return Counters(
        waiting=home.waiting,
        ready=len(here) - blocked,
        blocked=blocked,
        parked=len(away),
        parked_tokens=sum(visit.computed for visit in away if visit.resident),
        written_tokens=stats.written_tokens,
        throughput=stats.throughput(now),
        admitted_tokens=memory.admitted_tokens,
        cached_tokens=memory.cached_tokens,
        fed_tokens=stats.fed_tokens,
        hand_overs={sender: dict(to) for sender, to in home.hand_overs.items()},
        threshold_wait=stats.threshold_wait.snapshot(),
        steps=stats.steps(),
        routing={hook: times.snapshot() for hook, times in parts.visits.router.seconds.items()},
        delays=links.delays(),
        log_lines_dropped=logs.dropped_lines(),
    )
