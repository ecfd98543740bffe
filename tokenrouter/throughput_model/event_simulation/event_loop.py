"""The event loop of `events.py`, compiled: every request by itself, in whole ticks.

At each time at which something happens, first all batches that end there end and all requests that
arrive there arrive; then each idle model looks at its queue, as `subserver/batching.py` does: it
launches if its threshold is met or its longest wait is over, the oldest requests (lowest index)
first.
"""

from __future__ import annotations

import numpy

from tokenrouter.throughput_model.compiled import compiled
from tokenrouter.throughput_model.event_simulation.event_state import (
    BINS_PER_E,
    NEVER,
    Rules,
    State,
    Steps,
    Sums,
)

WHOLE = 1e-4
"""A token is whole when this little is missing: sums of expectations are rounded."""


@compiled
def run(rules: Rules, steps: Steps, state: State, sums: Sums, most: int) -> bool:
    """From time 0, when all wait for their first models, to the end of the last window.

    False: there are more than ``most`` steps until then.
    """
    made = 0
    horizon = sums.begin + sums.width * len(sums.windows)
    for request in range(len(steps.first)):
        _enqueue(state, request, steps.first[request], 0)
    now = 0
    while now < horizon:
        for model in range(len(state.end)):
            if state.end[model] == now:
                made += state.size[model]
                if made > most:
                    return False
                _complete(rules, steps, state, sums, model, now)
        while state.ring[1] and state.due[state.ring[0]] == now:
            first = state.ring[0]
            _enqueue(state, state.travellers[first], state.to[first], now)
            state.ring[0] = (first + 1) % len(state.due)
            state.ring[1] -= 1
        for model in range(len(state.end)):
            if state.end[model] == NEVER and state.queued[model]:
                due = state.queued[model] >= rules.thresholds[model]
                if due or now - state.longest[model] >= rules.max_wait:
                    _launch(rules, state, sums, model, now, not due)
        now = _next(rules, state)
    for model in range(len(state.end)):
        for request in range(len(state.since)):
            if state.waiting[model, request]:
                sums.queued[model] += horizon - max(state.since[request], sums.begin)
    return True


@compiled
def _next(rules: Rules, state: State) -> int:
    """When something happens next."""
    soonest = NEVER
    for model in range(len(state.end)):
        soonest = min(soonest, state.end[model])
        if state.end[model] == NEVER and state.queued[model] and rules.max_wait < NEVER:
            soonest = min(soonest, state.longest[model] + rules.max_wait)
    if state.ring[1]:
        soonest = min(soonest, state.due[state.ring[0]])
    return soonest


@compiled
def _enqueue(state: State, request: int, model: int, now: int) -> None:
    state.waiting[model, request] = True
    state.since[request] = now
    state.queued[model] += 1
    state.longest[model] = min(state.longest[model], now)


@compiled
def _launch(rules: Rules, state: State, sums: Sums, model: int, now: int, expired: bool) -> None:
    """Start a batch of the oldest that wait for ``model``."""
    horizon = sums.begin + sums.width * len(sums.windows)
    size = min(state.queued[model], rules.limits[model])
    counted = now >= sums.begin
    fed, taken, longest = 0.0, 0, NEVER
    for request in range(len(state.since)):
        if not state.waiting[model, request]:
            continue
        if taken == size:
            longest = min(longest, state.since[request])
            continue
        state.waiting[model, request] = False
        state.batch[model, taken] = request
        taken += 1
        fed += max(1.0, state.written[request] - state.seen[request, model])
        state.seen[request, model] = state.written[request]
        if counted:
            sums.waited[model] += now - state.since[request]
            sums.queued[model] += now - max(state.since[request], sums.begin)
    state.queued[model] -= size
    state.longest[model] = longest
    state.size[model] = size
    duration = rules.base[model, size - 1] + rules.per_token[model] * fed
    state.end[model] = now + max(1, int(numpy.rint(duration)))
    sums.busy[model] += max(0, min(state.end[model], horizon) - max(now, sums.begin))
    if counted:
        sums.served[model] += size
        sums.launches[model] += 1
        sums.expired[model] += expired


@compiled
def _complete(rules: Rules, steps: Steps, state: State, sums: Sums, model: int, now: int) -> None:
    """End a batch: each request commits and goes on."""
    window = (now - sums.begin) // sums.width
    state.end[model] = NEVER
    for place in range(state.size[model]):
        request = state.batch[model, place]
        step = state.step[request]
        to = steps.following[request, step]
        if window >= 0:
            sums.hops[window, model, to] += 1
        _commit(sums, request, steps.committed[request, step], now)
        state.written[request] += steps.committed[request, step]
        state.step[request] = step + 1
        if step + 1 == steps.lengths[request]:
            state.step[request] = 0
            state.laps[request] += 1
        if to == model or rules.hop == 0:
            _enqueue(state, request, to, now)
        else:
            slot = (state.ring[0] + state.ring[1]) % len(state.due)
            state.travellers[slot], state.to[slot] = request, to
            state.due[slot] = now + rules.hop
            state.ring[1] += 1


@compiled
def _commit(sums: Sums, request: int, tokens: float, now: int) -> None:
    """Count tokens, and the time since the token before once one more is whole."""
    sums.carry[request] += tokens
    whole = int(sums.carry[request] + WHOLE)
    if now >= sums.begin:
        sums.windows[(now - sums.begin) // sums.width] += tokens
        sums.tokens[request] += tokens
        if whole:
            gap = now - sums.last[request]
            sums.gaps[1 + int(BINS_PER_E * numpy.log(gap)) if gap else 0] += 1
            sums.gaps[0] += whole - 1
    if whole:
        sums.carry[request] -= whole
        sums.last[request] = now
