"""Two hundred clients at once, good and bad, for minutes; then nothing is left of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.soak.deployment import Deployment, timed
from tests.soak.oracle import Oracle
from tests.soak.traffic import Load
from tokenrouter.config import Config

CONTEXT = 2048
WARM_UP_S = 3


def deployment(algorithm: str, router_threshold: float, *step_ms: float) -> dict[str, Any]:
    config = timed(*step_ms, algorithm=algorithm, router_threshold=router_threshold)
    for number, model in enumerate(config["models"]):
        model |= {"context_length": CONTEXT, "threshold": 1 + 2 * number}
        # Less than all clients want at once: some wait, some visits are evicted.
        model["max_total_tokens"] = 12_000 - 2_000 * number
    return config


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        pytest.param(deployment("entropy", 0.6, 20, 40), 120, id="entropy"),
        pytest.param(deployment("cascade", 0.4, 20, 30, 40), 30, id="cascade"),
        pytest.param(deployment("random", 0.3, 20, 40), 30, id="random"),
    ],
)
def test_after_a_storm_everything_is_as_before(config: dict[str, Any], seconds: float) -> None:
    oracle = Oracle(Config.model_validate(config))
    with Deployment(config) as server:
        models = ["soak", "soak@0.2", *(f"soak/{m['name']}" for m in config["models"])]

        def load(clients: int, seconds: float) -> Load:
            load = Load(server.url, oracle, models, CONTEXT)
            asyncio.run(load.run(clients, seconds, seed=1))
            server.assert_clean()
            assert server.running() == 0
            return load

        load(20, WARM_UP_S)
        before = server.resources()
        counts = load(200, seconds).counts
        assert counts["exact"] > 10 * seconds, counts
        assert min(counts.values()) > 0, counts
        server.assert_resources(before)
        assert server.errors() == []
