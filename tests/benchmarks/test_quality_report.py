"""A row for each point, and a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from quality_report import plot, table

from tests.benchmarks.quality import point

CURVES = {
    "small": [point("small", 0.5, 0.0)],
    "large": [point("large", 1.0, 1.0)],
    "entropy": [point("entropy", 0.9, 0.05), point("entropy", 0.75, 0.02)],
    "token oracle": [replace(point("token oracle", 1.0, 0.01), seconds=0.0)],
}


def test_rows_tell_what_was_measured() -> None:
    delays = {("entropy", 0.02): {"first_ms": 9.0, "chunk_tokens": 1.25, "longest_chunk": 3.0}}
    rows = table(CURVES, delays).splitlines()
    assert len(rows) == 2 + 5
    assert len({row.count("|") for row in rows}) == 1
    assert rows[4].startswith("| entropy | 0.02 | 400 | 2.00 % | 0.750 (")
    assert rows[4].endswith("| 0.002 | 0.000 | 20000 | 9.0 | 1.25, 3.0 |")
    assert rows[6].endswith("|  |  |  |  |  |")


def test_a_picture_is_written(tmp_path: Path) -> None:
    plot(CURVES, tmp_path / "quality.png")
    assert (tmp_path / "quality.png").read_bytes().startswith(b"\x89PNG")
