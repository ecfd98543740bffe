"""``GET /metrics``: what every process counts, as Prometheus reads it.

Members count in plain Python and answer `Inspect` with their numbers; the front end adds
its own (`traffic.py`). Counters start again at 0 when their process does, as Prometheus
expects. A member that does not answer within a second has ``up`` 0 and no other series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastapi import Request, Response
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tokenrouter.config import FRONT_END_NAME, Config
from tokenrouter.frontend.families import Families
from tokenrouter.frontend.member_metrics import member_metrics
from tokenrouter.frontend.tokenizer_manager import RoutedTokenizerManager
from tokenrouter.frontend.traffic_metrics import traffic_metrics
from tokenrouter.ipc.member_state import MemberState
from tokenrouter.ipc.operations import Planned
from tokenrouter.processes import logs
from tokenrouter.processes.plan import rank_name

TIMEOUT_S = 1.0
"""How long a scrape waits for the members."""
UP = "1 if the process is there and, where asked, answers; else 0."
RESTARTS = "How often the supervisor has started the process again."
LINES = "Log lines that stderr did not take."
FRAMES = "Frames that were refused."


class Metrics:
    """The endpoint."""

    def __init__(self, config: Config, manager: RoutedTokenizerManager) -> None:
        self._config, self._manager = config, manager

    async def respond(self, client: Request) -> Response:
        """Every metric, in the text format that the client accepts."""
        states = await self._manager.inspector.ask(TIMEOUT_S)
        running = len(self._manager.rid_to_state)
        by_name = dict(zip(self._config.names, states, strict=True))
        ranks = {model.name: model.tp_size for model in self._config.models}
        metrics = (
            *_processes(self._manager.presence.report(), by_name, self._manager.dropped(), ranks),
            *member_metrics(self._config, states),
            *plan_metrics(self._config, self._manager.inspector.planned),
            *traffic_metrics(self._config, self._manager.traffic, running),
        )
        encode, content_type = choose_encoder(client.headers.get("accept", ""))
        return Response(exposition(metrics, encode), media_type=content_type)


def exposition(metrics: Iterable[Metric], encode: Callable[[Collector], bytes]) -> str:
    """The text that ``encode`` makes of metrics that are collected already."""

    class Collected(Collector):
        def collect(self) -> Iterable[Metric]:
            return metrics

    return encode(Collected()).decode()


def _processes(
    reports: Mapping[str, Mapping[str, Any]],
    states: Mapping[str, MemberState | None],
    dropped: Mapping[str, int],
    ranks: Mapping[str, int],
) -> Families:
    """``ranks``: how many processes each member is."""
    families = Families("process")
    for name, report in reports.items():
        state = states.get(name)
        answers = state is not None or name not in states
        for rank in range(ranks.get(name, 1)):  # they die, and are started again, as one
            process = (rank_name(name, rank),)
            families.gauge("up", UP, process, float(report["up"] and answers))
            families.counter("restarts", RESTARTS, process, report["restarts"])
        if state is not None and state.counters is not None:
            _losses(families, name, state.counters.log_lines_dropped, state.dropped)
    _losses(families, FRONT_END_NAME, logs.dropped_lines(), dropped)
    return families


def plan_metrics(config: Config, planned: Planned | None) -> Families:
    """What the planner has told; nothing, before it has decided anything."""
    families = Families("model_name")
    if planned is not None:
        labels = (config.served_name,)
        text = "Threshold tables that the planner has made since it started."
        families.counter("plan_changes", text, labels, planned.changes)
        text = "Live requests for which the table was made."
        families.gauge("plan_concurrency", text, labels, planned.concurrency)
        text = "Throughput that the model predicts there, over that of thresholds of 1."
        families.gauge("plan_gain", text, labels, planned.gain)
    return families


def _losses(families: Families, name: str, lines: int, frames: Mapping[str, int]) -> None:
    families.counter("log_lines_dropped", LINES, (name,), lines)
    for kind, count in frames.items():
        families.counter("dropped_frames", FRAMES, (name,), count, kind=kind)
