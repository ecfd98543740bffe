"""What the server says of itself."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest

from tests.frontend.fakes import NAMES, Deployment, make_config, make_roster, state_of
from tokenrouter.errors import MemberDeadError, RoutingError
from tokenrouter.frontend import information
from tokenrouter.frontend.exchange import Exchange
from tokenrouter.frontend.information import Information
from tokenrouter.frontend.presence import Presence
from tokenrouter.ipc.measured import from_json
from tokenrouter.ipc.member_state import MemberState
from tokenrouter.ipc.operations import Planned


def test_models(client: openai.OpenAI) -> None:
    models = list(client.models.list())
    assert [model.id for model in models] == [
        "demo", "demo:careful", "demo:picky", "demo/small", "demo/large",
    ]  # fmt: skip
    assert [model.model_extra["max_model_len"] for model in models if model.model_extra] == [
        512,
        512,
        512,
        1024,
        512,
    ]
    assert client.models.retrieve("demo:random@0.5").id == "demo:random@0.5"


def test_health(server: Deployment) -> None:
    assert httpx.get(f"{server.url}/health").status_code == 200
    assert not server.members.submitted


def test_server_info(server: Deployment) -> None:
    info = httpx.get(f"{server.url}/get_server_info").json()
    assert (info["served_name"], info["algorithm"], info["router_threshold"]) == (
        "demo",
        "entropy",
        0.45,
    )
    assert info["algorithms"]["careful"] == {
        "algorithm": "entropy",
        "router_threshold": 0.1,
        "algorithm_args": {},
    }
    assert info["router_threshold_range"] == [0.0, None], "None: any"
    small, large = info["models"]
    assert (small["name"], large["name"], large["threshold"]) == ("small", "large", "auto")
    assert (small["context_length"], large["context_length"]) == (1024, 512)
    assert large["state"]["member"] == 1
    assert large["state"]["batches"] == {"1": 3}
    assert from_json(large["state"]["measurements"]) == state_of(0, 1).measurements
    assert info["plan"] is None
    assert "ports" not in info and "socket_dir" not in info


def test_model_info(server: Deployment) -> None:
    info = httpx.get(f"{server.url}/get_model_info").json()
    assert info["tokenizer_path"] == str(server.config.tokenizer_path)
    assert info["is_generation"] is True


def test_api_documentation(server: Deployment) -> None:
    assert httpx.get(f"{server.url}/docs").status_code == 200
    api = httpx.get(f"{server.url}/openapi.json").json()
    assert {"/v1/chat/completions", "/generate", "/flush_cache", "/health"} <= set(api["paths"])
    assert "routing" in api["components"]["schemas"]["ChatRequest"]["properties"]


def test_the_manual_lists_every_endpoint_and_no_other(server: Deployment) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "http_api.md").read_text()
    rows = [line.split("|")[1] for line in manual.splitlines() if line.startswith("| `/")]
    listed = {path for cell in rows for path in re.findall(r"`(/\S+)`", cell)}
    served = httpx.get(f"{server.url}/openapi.json").json()["paths"]
    assert listed == {path.replace("{model}", "ID") for path in served}


def test_a_silent_member_is_named() -> None:
    class Inspector:
        async def ask(self, timeout_s: float) -> list[MemberState | None]:
            return [state_of(0, 0), None]

    manager: Any = SimpleNamespace(inspector=Inspector(), presence=Presence(make_roster(), NAMES))
    served = Information(make_config(Path("model")), manager)
    with pytest.raises(MemberDeadError, match="no answer from 'large'"):
        asyncio.run(served.health())


def test_an_infinite_threshold_can_be_shown() -> None:
    class Inspector:
        planned = Planned(2, [(1, 1), (1, 2)], 1, 2, 1.1, "p = 0.35")

        async def ask(self, timeout_s: float) -> list[MemberState | None]:
            return [None, None]

    manager: Any = SimpleNamespace(inspector=Inspector(), presence=Presence(make_roster(), NAMES))
    config = make_config(Path("model"), router_threshold=float("inf"))
    response = asyncio.run(Information(config, manager).server_info())
    info = json.loads(bytes(response.body))
    assert info["router_threshold"] is None
    assert info["plan"] == {
        "version": 2, "table": [[1, 1], [1, 2]], "changes": 1, "concurrency": 2, "gain": 1.1,
        "reason": "p = 0.35",
    }  # fmt: skip


@pytest.mark.parametrize("why", [None, RoutingError("it computed NaN")])
def test_a_member_that_writes_nothing_is_named_and_its_probe_aborted(
    monkeypatch: pytest.MonkeyPatch, why: RoutingError | None
) -> None:
    class Manager:
        def __init__(self) -> None:
            self.finished: list[int] = []

        async def generate_request(self, work: Any) -> AsyncIterator[Any]:
            if work.exchange.route.home == 1:
                if why is not None:
                    raise why
                await asyncio.sleep(60)
            yield {"output_ids": [5]}

        def finish(self, exchange: Exchange) -> None:
            self.finished.append(exchange.route.home)

    manager: Any = Manager()
    monkeypatch.setattr(information, "HEALTH_TIMEOUT_S", 0.05)
    served = Information(make_config(Path("model")), manager)
    with pytest.raises(MemberDeadError, match="no token from 'large'"):
        asyncio.run(served.health_generate())
    assert sorted(manager.finished) == [0, 1]
