"""The loop's own cost, as the benchmark measures it: CPU time, so a busy machine may run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = {**os.environ, "PYTHONPATH": str(ROOT)}
"""So that the code beside the benchmark is measured, whatever is installed."""
LINEAR = 1.5
"""Of the cost a request, at 256 to that at 16: 1, and what caches and other processes add."""


def test_an_iteration_is_cheap_and_linear_in_its_batch(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [
        sys.executable, "benchmarks/loop_cost.py", "--batches", "16", "256", "--steps", "60",
        "--hand-overs", "50", "--profile", "--json", str(report),
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, env=HERE, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(report.read_text())
    cost = {(each["kind"], each["batch"]): each["total_ms"] for each in result["iterations"]}
    assert len(cost) == 6, done.stdout
    for kind in ("alone", "p = 0", "routed"):
        assert cost[kind, 16] < result["budget_ms"], done.stdout
        assert cost[kind, 256] < LINEAR * 16 * cost[kind, 16], done.stdout
    # Not a bound: delays are real time, and the machine may be busy.
    assert result["delay_ms"]["50"] > 0.0, done.stdout
