"""A member's answer to `Inspect`: what its loop holds and has done, put together.

Asked for, through `loop.py`, by the front end for health checks, operators and Prometheus,
and by the planner for what it needs to know of this member.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenrouter.ipc.member_state import Counters, MemberState
from tokenrouter.processes import logs
from tokenrouter.subserver.engine import Engine
from tokenrouter.subserver.home import Home
from tokenrouter.subserver.links import Links
from tokenrouter.subserver.measurements import Meter
from tokenrouter.subserver.memory import Memory
from tokenrouter.subserver.recording import Recorder
from tokenrouter.subserver.stats import Stats
from tokenrouter.subserver.thresholds import Thresholds
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
    meter: Meter
    thresholds: Thresholds
    recorder: Recorder | None


def state(ticket: int, parts: Parts, links: Links, now: float) -> MemberState:
    """The answer, at ``now``."""
    stats, home, thresholds = parts.stats, parts.home, parts.thresholds
    live = home.live_requests
    return MemberState(
        ticket=ticket,
        member=parts.member,
        visits=len(parts.visits),
        requests=len(home),
        live=live,
        threshold=thresholds.now(live),
        free_tokens=parts.engine.free_tokens(),
        pool_tokens=parts.engine.pool_tokens,
        batches=dict(stats.batches),
        step_ms=stats.step_ms,
        expired_waits=stats.expired_waits,
        evictions=parts.memory.evictions,
        stale=parts.visits.stale + home.stale,
        dropped=links.dropped() | _losses(parts),
        counters=_counters(parts, links, now),
        measurements=parts.meter.snapshot(now),
        plan=thresholds.version,
    )


def _losses(parts: Parts) -> dict[str, int]:
    """What else was not applied or not written, by kind."""
    recorder = parts.recorder
    found = {"plan": parts.thresholds.unsafe, "decision": recorder.lost if recorder else 0}
    return {kind: count for kind, count in found.items() if count}


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
