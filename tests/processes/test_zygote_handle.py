"""What a zygote, and with it every child, is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenrouter.processes.directory import socket_directory
from tokenrouter.processes.zygote_handle import ZygoteHandle

pytestmark = pytest.mark.timeout(20)


@pytest.mark.parametrize(("said", "told"), [(None, "false"), ("true", "true")])
def test_tokenizers_warn_of_no_fork_unless_the_user_chooses(
    monkeypatch: pytest.MonkeyPatch, said: str | None, told: str
) -> None:
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if said is not None:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", said)
    with socket_directory(None, ("small",)) as directory:
        zygote = ZygoteHandle(directory)
        try:
            variables = Path(f"/proc/{zygote.pid}/environ").read_text().split("\0")
        finally:
            zygote.end()
    assert [each for each in variables if each.startswith("TOKENIZERS")] == [
        f"TOKENIZERS_PARALLELISM={told}"
    ]
