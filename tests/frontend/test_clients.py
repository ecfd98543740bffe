"""Clients that leave: what they asked for is aborted at once, and the server goes on."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from tests.frontend.fakes import Deployment, leave

ENDPOINTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "STOP"}]}),
    ("/v1/completions", {"prompt": "STOP"}),
    ("/generate", {"text": "STOP"}),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), ENDPOINTS)
def test_the_request_is_aborted_at_once(
    server: Deployment, path: str, body: dict[str, Any], stream: bool
) -> None:
    members = server.members
    left = leave(server, path, {**body, "stream": stream})
    assert members.wait_for(lambda: bool(members.aborted))
    assert time.monotonic() - left < 0.5
    assert members.aborted == [members.submitted[0].submit.uid]


def test_every_prompt_of_a_batch_is_aborted(server: Deployment) -> None:
    members = server.members
    leave(server, "/generate", {"text": ["STOP", "STOP 2", "hello"]}, requests=3)
    assert members.wait_for(lambda: len(members.aborted) == 2)
    assert sorted(members.aborted) == [s.submit.uid for s in members.submitted[:2]]


def test_leaving_during_the_prefix_request_of_several_samples(server: Deployment) -> None:
    members = server.members
    leave(server, "/generate", {"text": "STOP", "sampling_params": {"n": 3}})
    assert members.wait_for(lambda: bool(members.aborted))
    assert members.aborted == [members.submitted[0].submit.uid]
    assert len(members.submitted) == 1


def test_leaving_in_the_middle_of_a_stream(server: Deployment) -> None:
    members = server.members
    body = {"text": ["hello", "STOP"], "stream": True}
    with httpx.stream("POST", f"{server.url}/generate", json=body) as response:
        next(response.iter_lines())
        assert members.wait_for(lambda: len(members.submitted) == 2)
        stopped = members.submitted[1].submit.uid
    assert members.wait_for(lambda: stopped in members.aborted)


def test_a_finished_request_is_not_aborted(server: Deployment) -> None:
    for stream in (False, True):
        body = {"text": "hello", "stream": stream}
        assert httpx.post(f"{server.url}/generate", json=body).status_code == 200
    assert not server.members.wait_for(lambda: bool(server.members.aborted), timeout=0.3)
