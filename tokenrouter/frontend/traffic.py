"""What the front end counts of its requests, for `metrics.py`.

The tokenizer manager tells of requests to homes, `access.py` of HTTP requests. Labels are
few by construction: listed model names, members, finish reasons, routes, statuses.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from tokenrouter.config import Config
from tokenrouter.frontend.exchange import Live
from tokenrouter.histogram import Histogram
from tokenrouter.ipc.messages import Route

REQUEST_S = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 800)
FIRST_TOKEN_S = (0.005, 0.01, 0.02, 0.05, *REQUEST_S[:-1])
TOKEN_S = (
    0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04,
    0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8,
)  # fmt: skip
"""Bounds of latencies: SGLang's, and shorter ones."""
KNOWN_OUTCOMES = frozenset({"stop", "length", "abort"})


class ModelTraffic:
    """Requests for one listed model name."""

    def __init__(self, members: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generated = [0] * members
        self.hand_overs = 0
        self.queue = Histogram(FIRST_TOKEN_S)
        self.first_token = Histogram(FIRST_TOKEN_S)
        self.between_tokens = Histogram(TOKEN_S)
        self.request = Histogram(REQUEST_S)


class Traffic:
    """Since the front end started. Times are the host's monotonic clock, in seconds."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.models: defaultdict[str, ModelTraffic] = defaultdict(
            lambda: ModelTraffic(len(config.models))
        )
        self.http: Counter[tuple[str, str, int]] = Counter()
        """HTTP requests by method, endpoint and status."""
        self.gone: Counter[str] = Counter()
        """Clients that left before their answer was complete, by endpoint."""

    def name_of(self, route: Route) -> str:
        """The listed name of the model that a request asked for."""
        served = self._config.served_name
        if len(route.members) < len(self._config.models):
            return f"{served}/{self._config.names[route.members[0]]}"
        return served if route.preset is None else f"{served}:{route.preset}"

    def received(self, live: Live, counts: Sequence[int], tokens: int, now: float) -> None:
        """``tokens`` more tokens of a request came; the members' shares are ``counts`` now.

        Called before ``live`` is told.
        """
        if live.internal or not tokens:
            return
        model = self.models[self.name_of(live.exchange.route)]
        before = live.member_tokens or [0] * len(counts)
        for member, count in enumerate(counts):
            model.generated[member] += max(count - before[member], 0)
        if live.last_token:
            model.between_tokens.observe((now - live.last_token) / tokens, tokens)
        else:
            # A home that does not stream tells when the first was written.
            first = now if live.stream else live.first_token or now
            live.first_token = first
            model.first_token.observe(first - live.exchange.created)
            if tokens > 1:
                model.between_tokens.observe((now - first) / (tokens - 1), tokens - 1)
        live.last_token = now

    def ended(self, live: Live, now: float) -> None:
        """Nothing more will come of a request."""
        live.ended = now
        if live.internal:
            return
        model = self.models[self.name_of(live.exchange.route)]
        model.outcomes[outcome_of(live)] += 1
        model.prompt_tokens += len(live.prompt)
        model.cached_tokens += live.cached_tokens
        model.hand_overs += live.hand_overs
        model.request.observe(now - live.exchange.created)
        if live.started:
            model.queue.observe(max(live.started - live.sent, 0.0))


def outcome_of(live: Live) -> str:
    """How a request ended: a finish reason, or ``error`` with its HTTP status."""
    finish = live.finish or {}
    kind = str(finish.get("type"))
    status = finish.get("status_code")
    if kind == "abort" and status is not None:
        return f"error_{int(status)}"
    return kind if kind in KNOWN_OUTCOMES else "other"
