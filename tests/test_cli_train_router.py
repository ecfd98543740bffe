"""`tokenrouter train-router`: what is wrong with its flags, in one line each, and a whole run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tokenrouter import cli

ROOT = Path(__file__).parent.parent
PAIR = "--small demo:small --large demo:large --prompts prompts --out out "


def run(capsys: pytest.CaptureFixture[str], arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a training."""
    with pytest.raises(SystemExit) as status:
        cli.main(["train-router", *arguments.split()])
    said = capsys.readouterr()
    return int(status.value.code or 0), said.out, said.err


@pytest.fixture(autouse=True)
def prompts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file of as few prompts as may be, in the working folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "prompts"
    path.write_text("Ann has 12 pens and finds 34 more. How many pens?\n" * 10)
    return path


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (PAIR + "--epochs 0", "--epochs: must be from 1 on, got 0"),
        (PAIR + "--batch-size -2", "--batch-size: must be from 1 on, got -2"),
        (PAIR + "--epsilon 0", "--epsilon: must be above 0 and at most 1, such as 0.1, got 0"),
        (PAIR + "--recall 95", "--recall: must be above 0 and at most 1, such as 0.1, got 95"),
        (PAIR + "--share nan", "--share: must be above 0 and at most 1"),
        (PAIR + "--learning-rate 0", "--learning-rate: must be above 0 and at most 1"),
        (PAIR + "--dropout 1", "--dropout: must be from 0 to below 1, got 1"),
        (PAIR + "--chat-template-args [1]", "--chat-template-args: wants a JSON object"),
        (PAIR + "--chat-template-args {", "--chat-template-args: not JSON"),
        (PAIR + "--judge-url http://x", "--judge-url, --judge-model: a judge needs both"),
        (
            PAIR + "--judge-url x --judge-model m",
            "--judge-url: must begin with http:// or https://",
        ),
        (PAIR + "--dtype fp4", "--dtype: fp4 is no precision, such as bfloat16"),
        (PAIR.replace("prompts --out", "none --out"), "--prompts: none cannot be read"),
        (PAIR.replace("demo:small", "nowhere"), "nowhere: is no model's folder"),
        (PAIR.replace("--out out", "--out prompts"), "--out: prompts: cannot be used"),
    ],
)
def test_wrong_flags(capsys: pytest.CaptureFixture[str], arguments: str, complaint: str) -> None:
    status, _, said = run(capsys, arguments)
    assert status == 2 and said.startswith("tokenrouter: error: ") and said.count("\n") == 1
    assert complaint in said


def test_too_few_prompts(capsys: pytest.CaptureFixture[str], prompts: Path) -> None:
    status, _, said = run(capsys, PAIR + "--max-tokens 2")
    assert status == 1
    assert "of 16 positions for training, 0 change the meaning" in said
    assert "answers (0 of 1)\n" in said
    prompts.write_text("How many pens?\n" * 9)
    status, _, said = run(capsys, PAIR.replace("--out out", "--out other"))
    assert status == 2
    assert "--prompts: 9 of them, and a router needs 10 at least" in said
    assert not (prompts.parent / "other").exists()


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom tokenrouter.cli import main\n"
        "try:\n main(['train-router', '--help'])\nexcept SystemExit:\n pass\n"
        "print([m for m in ('numpy', 'numba', 'httpx', 'torch') if m in sys.modules])"
    )
    said = subprocess.check_output([sys.executable, "-c", script], text=True, cwd=ROOT)
    assert "--judge-url" in said and said.endswith("[]\n")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_from_prompts_to_a_router(
    capsys: pytest.CaptureFixture[str], prompts: Path, tmp_path: Path
) -> None:
    """The demo pair, in a minute: better than chance, and the same again without any work."""
    from tokenrouter.demo.splits import for_training

    prompts.write_text("\n".join(problem.question for problem in for_training(120)))
    arguments = PAIR + "--json --max-tokens 256 --batch-size 60 --width 32 --blocks 2 "
    arguments += "--epochs 8 --learning-rate 2e-3 --train-batch 256"
    status, out, _ = run(capsys, arguments)
    report = json.loads(out)
    assert status == 0 and report["auc"] > 0.8
    assert {Path(name).name for name in report["files"]} == {
        *("router.safetensors", "router.pt", "report.json", "calibration.png")
    }
    assert all(Path(name).exists() for name in report["files"])
    assert json.loads(run(capsys, arguments)[1]) == report
