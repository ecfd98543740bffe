"""Two ranks of SGLang's engine, each in a process: exact, and equal batches and pools."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.subserver.sglang_compat.tiny_models import TinyModel
from tokenrouter.ipc.free_ports import free_ports

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]


def run(model: TinyModel, folder: Path, *rest: str, **entry: Any) -> list[tuple[int, str, str]]:
    """(exit status, output, errors) of each rank."""
    [port] = free_ports(1)
    arguments = [str(port), f"ipc://{folder / 'rank.sock'}", json.dumps(entry)]
    ranks = [
        subprocess.Popen(
            [
                sys.executable, "-m", "tests.subserver.sglang_compat.two_ranks", str(model.path),
                rank, *arguments, *rest,
            ],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in ("0", "1")
    ]  # fmt: skip
    found = []
    for rank in ranks:
        output, errors = rank.communicate(timeout=100)
        found.append((rank.returncode, output, errors))
    return found


@pytest.mark.parametrize(
    ("architecture", "entry"),
    [
        ("qwen3", {"max_total_tokens": 400}),
        ("llama", {"max_total_tokens": 2000, "disable_radix_cache": True}),
    ],
)
def test_any_history_on_two_ranks(
    architecture: str, entry: dict[str, Any], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    first, second = run(request.getfixturevalue(architecture), tmp_path, **entry)
    assert first[0] == 0, first[2]
    assert second[0] == 0, second[2]
    ends = [json.loads(output.splitlines()[-1]) for _, output, _ in (first, second)]
    assert ends[0] == ends[1]
    assert ends[0]["digest"]
    assert ends[0]["free"] == entry["max_total_tokens"]


def test_a_rank_whose_pool_differs_says_so(qwen3: TinyModel, tmp_path: Path) -> None:
    first, second = run(qwen3, tmp_path, "corrupt", max_total_tokens=400)
    assert second[0] == 1
    assert "RankError: the batches here differ from those of rank 0" in second[2]
    assert first[0] == 1
    assert "RankError: the forward pass failed, as it does when another rank is gone" in first[2]
