"""What never reaches a front end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tokenrouter.errors import RequestError
from tokenrouter.offline.client import Client

BODY = {"text": "an unpaired surrogate: \ud800", "sampling_params": {"top_k": object()}}


@pytest.mark.parametrize("field", BODY)
def test_what_is_no_json_is_the_fault_of_the_request(tmp_path: Path, field: str) -> None:
    process: Any = SimpleNamespace(socket=str(tmp_path / "none"), check=lambda: None)
    client = Client(process)
    body = {field: BODY[field]}
    try:
        for ask in (
            lambda: client.ask(body),
            lambda: next(client.stream(body)),
            lambda: asyncio.run(client.ask_async(body)),
            lambda: asyncio.run(anext(client.stream_async(body))),
        ):
            with pytest.raises(RequestError, match="cannot be written as JSON"):
                ask()
    finally:
        client.close()
