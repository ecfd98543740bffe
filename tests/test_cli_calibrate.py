"""`tokenrouter calibrate`: what is wrong with its flags and with servers, in one line each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tokenrouter import cli

pytestmark = pytest.mark.timeout(20)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit status of a calibration, and what it says on stderr."""
    with pytest.raises(SystemExit) as status:
        cli.main(["calibrate", *arguments])
    return int(status.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("", "give the URL of a server, or --config FILE, or --demo"),
        ("http://host --demo", "give the URL of a server, or --config FILE, or --demo"),
        ("--config none.yaml", "none.yaml"),
        ("host --concurrency 2 0", "--concurrency: must be from 1 on, got 0"),
        ("host --seconds -1", "--seconds: must be a time"),
        ("host --seconds 0", "--seconds: 0 measures nothing; give more, or --share"),
        ("host --seconds 0 --share 0.1 --out p.yaml", "--out: --seconds 0 measures nothing"),
        ("host --out nowhere/p.yaml", "--out: nowhere is no folder that can be written to"),
        ("host --share 0.1 5", "--share: must be between 0 and 1, such as 0.1, got 5"),
        ("host --max-tokens 1", "--max-tokens: must be from 2 on, got 1"),
        ("host --prompts nowhere", "--prompts: nowhere cannot be read"),
    ],
)
def test_wrong_flags(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: str,
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    status, said = run(capsys, *arguments.split())
    assert status == 2 and said.startswith("tokenrouter: error: ") and said.count("\n") == 1
    assert complaint in said


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = run(capsys, "127.0.0.1:9")
    assert status == 1
    assert said.startswith("tokenrouter: error: no answer from http://127.0.0.1:9 (")
    assert said.count("\n") == 1 and "`tokenrouter serve`" in said


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom tokenrouter.cli import main\n"
        "try:\n main(['calibrate', '--help'])\nexcept SystemExit:\n pass\n"
        "print([m for m in ('numpy', 'numba', 'httpx', 'torch') if m in sys.modules])"
    )
    said = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert "--share" in said and said.endswith("[]\n")
