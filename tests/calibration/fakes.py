"""A server that is a function: answers and what members measured follow from a router threshold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx

from tokenrouter.ipc.measured import to_json
from tokenrouter.ipc.member_state import Measurements, StepSums

KEY = "sesame"
NOTHING = StepSums(0, 0.0, 0.0, 0, 0, 0.0)


def steps(count: int, seconds: float, tokens: int) -> StepSums:
    """So many steps alike, of ``seconds`` each that feed ``tokens`` each."""
    return StepSums(
        count, count * seconds, count * seconds**2, count * tokens, count * tokens**2,
        count * tokens * seconds,
    )  # fmt: skip


def measurements(at: float, own: int, away: int, seconds: float, member: int) -> Measurements:
    """Of ``member`` after so many steps that stayed with it and that left for the other."""
    other = 1 - member
    return Measurements(
        at=at,
        steps={1: steps(own + away, seconds, 1)},
        prefill=NOTHING,
        profile={},
        hops={member: (own, own), other: (away, away * member)},
        runs={1: away},
        live_seconds=at,
    )


def pair(at: float, own: int, away: int) -> tuple[Measurements, Measurements]:
    """A small model after ``own`` + ``away`` steps, and a large one that gives back at once."""
    return measurements(at, own, away, 0.006, 0), measurements(at, 0, away, 0.02, 1)


class FakeServer:
    """Routes between ``small`` and ``large``; counts what it was asked.

    Args:
        share: from a router threshold and a prompt to the large model's tokens of 100.
        readings: what both members measured, one pair a look at the server's information; the
            last one stays.
    """

    def __init__(
        self,
        share: Callable[[float, str], int] = lambda threshold, prompt: 10,
        readings: list[tuple[Measurements, Measurements]] | None = None,
        **info: Any,
    ) -> None:
        self.share, self.readings = share, readings or []
        self.info = {
            "served_name": "demo",
            "algorithm": "entropy",
            "router_threshold": 0.1,
            "router_threshold_range": [0.0, None],
            "models": [
                {"name": name, "max_batch": 8, "state": {"threshold": 1}}
                for name in ("small", "large")
            ],
            **info,
        }
        self.bodies: list[dict[str, Any]] = []
        self.key: str | None = None
        self.delay_s = 0.0
        self.most_at_once = self._at_once = 0

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._respond)

    async def _respond(self, request: httpx.Request) -> httpx.Response:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return _error(401, "no such key", "invalid_api_key")
        if request.url.path == "/get_server_info":
            self._look()
            return httpx.Response(200, json=self.info)
        body = json.loads(request.content)
        self.bodies.append(body)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(self.delay_s)
        self._at_once -= 1
        text = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
        if text == "too long":
            return _error(400, "prompt: too long", "invalid_value")
        threshold = float(body["model"].partition("@")[2] or self.info["router_threshold"])
        large = self.share(threshold, text)
        tokens = {"small": 100 - large, "large": large}
        return httpx.Response(200, json={"routing": {"tokens": tokens}})

    def _look(self) -> None:
        if self.readings:
            pair = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
            for model, measured in zip(self.info["models"], pair, strict=True):
                model["state"]["measurements"] = to_json(measured)


def _error(status: int, message: str, code: str) -> httpx.Response:
    kind = "invalid_request_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return httpx.Response(status, json={"error": error})
