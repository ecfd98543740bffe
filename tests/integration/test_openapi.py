"""The OpenAPI document against a running server: thousands of made-up requests, none a 5xx."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.server import Server

TIMED = {
    "served_name": "demo",
    "algorithm": "random",
    "router_threshold": 0.3,
    "models": [
        {"name": "small", "engine": "timed", "step_ms": 0.1, "context_length": 256},
        {"name": "large", "engine": "timed", "step_ms": 0.3, "context_length": 256, "threshold": 2},
    ],
}
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
GENERATING = ("/v1/chat/completions", "/v1/completions", "/generate")
LEAST = 2000


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_made_up_requests(tmp_path: Path) -> None:
    with Server(TIMED) as server:
        answered = schemathesis(server, tmp_path)
        assert re.search(r"[1-9]\d* generated", answered.stdout), answered.stdout
        assert answered.returncode == 0, answered.stdout
        statuses = counts(server)
        assert sum(statuses.values()) >= LEAST
        assert not [key for key in statuses if key[1] >= 500], statuses
        for path in GENERATING:
            assert statuses[path, 200] >= 10, "hardly a request was served"
            assert statuses[path, 400] >= 10, "hardly a request was wrong"
        server.assert_clean()


def schemathesis(server: Server, folder: Path) -> subprocess.CompletedProcess[str]:
    """A run over every endpoint but the pause, which would hold all others back."""
    return subprocess.run(
        [
            sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json",
            "--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing",
            "--max-examples", "40", "--exclude-path", "/pause_generation",
            "--seed", "1", "--generation-database", "none", "--request-timeout", "30", "--no-color",
            "--suppress-health-check", "too_slow",
        ],
        cwd=folder, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip


def counts(server: Server) -> Counter[tuple[str, int]]:
    """Requests by endpoint and status, as the server has counted them."""
    found: Counter[tuple[str, int]] = Counter()
    text = httpx.get(f"{server.url}/metrics", timeout=20).text
    for family in text_string_to_metric_families(text):
        if family.name == "tokenrouter_http_requests":
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    key = sample.labels["endpoint"], int(sample.labels["status"])
                    found[key] += int(sample.value)
    return found
