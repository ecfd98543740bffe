"""The lists of metrics that people read name what is served, and nothing else."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import httpx
import pytest
from prometheus_client.exposition import generate_latest

from tests.frontend.fakes import NAMES, Deployment, make_config
from tests.frontend.test_metrics import Scrape, ask, scrape, state
from tokenrouter.frontend.member_metrics import member_metrics
from tokenrouter.frontend.metrics import exposition, plan_metrics
from tokenrouter.ipc.operations import Planned

ROOT = Path(__file__).parents[2]
SUFFIXES = ("_bucket", "_sum", "_count")
WHEN_REFUSED = "tokenrouter_dropped_frames_total"
"""Appears only once frames were refused."""
NAME = re.compile(r"tokenrouter_[a-z0-9_]+")


def served(server: Deployment) -> set[str]:
    """Every metric there is, counters with ``_total``."""
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/generate", json={"text": "STOP"}, timeout=0.3)
    assert server.members.wait_for(lambda: bool(server.members.aborted))
    ask(server, prompt="hello")
    config = make_config(Path("model"))
    members = member_metrics(config, [state(member) for member in range(len(NAMES))])
    plan = plan_metrics(config, Planned(1, [(1, 1)], 1, 1, 1.0, ""))
    more = Scrape(exposition(chain(members, plan), generate_latest))
    seen: tuple[Scrape, ...] = (scrape(server), more)
    return {
        f"{name}_total" if family.type == "counter" else name
        for each in seen
        for name, family in each.families.items()
    }


def test_the_documentation_lists_every_metric(server: Deployment) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = "\n".join(line for line in text.splitlines() if line.startswith("| `"))
    listed = set(NAME.findall(rows))
    assert listed - {WHEN_REFUSED} == served(server)


def test_the_queries_of_the_manual_use_metrics_that_exist(server: Deployment) -> None:
    found = set(NAME.findall((ROOT / "docs" / "operations.md").read_text()))
    assert len(found) > 5
    there = served(server) | {WHEN_REFUSED}
    for name in found:
        plain = next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s)), name)
        assert {name, plain} & there, name
