"""What the front end counted as Prometheus metrics, with SGLang's names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import Metric

from tokenrouter.config import Config
from tokenrouter.frontend.families import Families
from tokenrouter.frontend.traffic import ModelTraffic, Traffic


def traffic_metrics(config: Config, traffic: Traffic, running: int) -> Iterable[Metric]:
    """Metrics of requests by listed model name, and of HTTP; ``running``: requests at homes."""
    models = Families("model_name")
    for name, model in sorted(traffic.models.items()):
        _requests(models, (name,), model)
        for member, count in zip(config.names, model.generated, strict=True):
            text = "Output tokens that reached the front end, by the member that wrote them."
            if count:
                models.counter("generation_tokens", text, (name,), count, member=member)
    text = "Requests at homes now, waiting ones included."
    models.gauge("num_requests_in_flight", text, (config.served_name,), running)
    http = Families("method", "endpoint", "status")
    for (method, endpoint, status), count in sorted(traffic.http.items()):
        labels = (method, endpoint, str(status))
        http.counter("http_requests", "HTTP requests answered.", labels, count)
    gone = Families("endpoint")
    for endpoint, count in sorted(traffic.gone.items()):
        text = "Clients that left before their answer was complete."
        gone.counter("client_disconnects", text, (endpoint,), count)
    return [*models, *http, *gone]


def _requests(families: Families, labels: Sequence[str], model: ModelTraffic) -> None:
    for outcome, count in sorted(model.outcomes.items()):
        text = "Requests that ended, by finish reason, or error_STATUS."
        families.counter("num_requests", text, labels, count, outcome=outcome)
    aborted = model.outcomes["abort"]
    for name, text, value in (
        ("num_aborted_requests", "Requests that were aborted.", aborted),
        ("prompt_tokens", "Prompt tokens of requests that ended.", model.prompt_tokens),
        ("cached_tokens", "Those that their home found in its prefix cache.", model.cached_tokens),
        ("request_hand_overs", "Hand-overs of requests that ended.", model.hand_overs),
    ):
        families.counter(name, text, labels, value)
    for name, text, times in (
        ("time_to_first_token_seconds", "Time from request to first token.", model.first_token),
        ("inter_token_latency_seconds", "Time between output tokens.", model.between_tokens),
        ("e2e_request_latency_seconds", "Time from request to end.", model.request),
        ("queue_time_seconds", "Time from sending to the home to its start there.", model.queue),
    ):
        families.histogram(name, text, labels, times.snapshot())
