"""Clients that cost the machine as little as possible: bytes over a socket, hardly parsed."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PATH = "/v1/completions"
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Answer:
    """``last``: when its last event came (seconds, monotonic)."""

    last: float
    tokens: int


def ask_all(
    port: int, model: str, prompts: Sequence[Sequence[int]], tokens: int, stream: bool
) -> tuple[float, list[Answer]]:
    """Every prompt at once, ``tokens`` tokens each; when that began, and the answers."""

    async def run() -> tuple[float, list[Answer]]:
        bodies = [_body(model, prompt, tokens, stream) for prompt in prompts]
        start = time.monotonic()
        answers = await asyncio.wait_for(
            asyncio.gather(*(_ask(port, body) for body in bodies)), TIMEOUT_S
        )
        return start, answers

    started, answers = asyncio.run(run())
    if short := [each.tokens for each in answers if each.tokens != tokens]:
        sys.exit(f"{model}: asked for {tokens} tokens, got {short}")
    return started, answers


def _body(model: str, prompt: Sequence[int], tokens: int, stream: bool) -> bytes:
    body: dict[str, Any] = {
        "model": model, "prompt": list(prompt), "max_tokens": tokens, "temperature": 0,
        "ignore_eos": True, "stream": stream,
    }  # fmt: skip
    if stream:
        body["stream_options"] = {"include_usage": True}
    data = json.dumps(body).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data


async def _ask(port: int, body: bytes) -> Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(body)
    last = 0.0
    received = bytearray()
    while data := await reader.read(65536):
        received += data
        last = time.monotonic()
    writer.close()
    mark = b'"completion_tokens":'
    if b" 200 " not in received[:20] or mark not in received:
        sys.exit(f"request failed: {bytes(received[:500])!r}")
    tokens = int(received.rsplit(mark, 1)[1].lstrip().split(b",")[0].split(b"}")[0])
    return Answer(last, tokens)
