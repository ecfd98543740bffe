"""`tokenrouter plan`: a file's plan on stdout, or one line that says what is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tokenrouter import cli
from tokenrouter.throughput_model.planning import scoring

ROOT = Path(__file__).parent.parent
MANUAL = (ROOT / "docs" / "thresholds.md").read_text()
KNOWN = json.loads((ROOT / "tests" / "throughput_model" / "acceptance.json").read_text())["rows"]
EXAMPLE: dict[str, Any] = {
    "models": [{"name": "small", "latency_ms": 6.0}, {"name": "large", "latency_ms": 27.9}],
    "routing": [[0.65, 0.35], [1.0, 0.0]],
    "committed": [[1, 0], [1, 1]],
    "concurrency": [2, 3, 4],
    "tick_ms": 0.1,
}


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example, in the working folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(EXAMPLE))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command line."""
    with pytest.raises(SystemExit) as status:
        cli.main(["plan", *arguments])
    said = capsys.readouterr()
    return int(status.value.code or 0), said.out, said.err


def test_the_acceptance_values(params: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, str(params), "--json")
    assert (status, err) == (0, "")
    plan = json.loads(out)
    found = {(row["concurrency"], *row["thresholds"]): row for row in plan["rows"]}
    rates = {key: row["tokens_per_s"] for key, row in found.items()}
    known = {(row["N"], *row["theta"]): row["tokens_per_s"] for row in KNOWN}
    assert rates == pytest.approx(known, rel=5e-4)
    best = {key: row["thresholds"] for key, row in plan["best"].items()}
    assert best == {"2": [1, 2], "3": [1, 2], "4": [1, 3]}
    three = found[(4, 1, 3)]
    assert (three["method"], three["states"], three["stderr"]) == ("exact", 14, 0)
    assert plan["best"]["4"] == three


def test_flags_come_before_the_file(params: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--objective", "itl_p99_ms: 65", "--concurrency", "4", "2", str(params), "--json")
    _, out, _ = run(capsys, *flags)
    plan = json.loads(out)
    assert plan["objective"] == {"itl_p99_ms": 65.0}
    best = {key: row["thresholds"] for key, row in plan["best"].items()}
    assert best == {"4": [1, 2], "2": [1, 1]}


def test_a_longest_wait_is_simulated(params: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = (str(params), "--json", "--max-wait-ms", "20", "--concurrency", "2")
    plan = json.loads(run(capsys, *flags)[1])
    assert {row["method"] for row in plan["rows"]} == {"simulated"}
    late = {tuple(row["thresholds"]): row["expired_waits_per_s"] for row in plan["rows"]}
    assert late[1, 1] == 0.0 < late[1, 2]


def test_everything_at_once(
    params: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "MORE_STEPS", 100_000)
    flags = (str(params), "--concurrency", "2", "--plot", "plan.png", "--sensitivity")
    status, out, err = run(capsys, *flags)
    assert (status, err) == (0, "")
    assert "2 requests: best 1,2, 110.3 tokens/s" in out
    assert "latency of large +20%" in out
    assert Path("plan.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["none.yaml"], "none.yaml: cannot be read: No such file or directory; give the path"),
        (["params.yaml", "--objective", "speed"], "--objective: must be throughput, or itl_p99"),
        (["params.yaml", "--objective", "["], "--objective: must be throughput, or itl_p99_ms"),
        (["params.yaml", "--max-wait-ms", "0"], "--max-wait-ms: must be more than 0, got 0"),
        (["params.yaml", "--max-wait-ms", "nan"], "--max-wait-ms: must be more than 0, got nan"),
        (["params.yaml", "--concurrency", "0"], "--concurrency: must be from 1 to 4096, got 0"),
        (["params.yaml", "--concurrency", "9999999"], "--concurrency: must be from 1 to 4096, got"),
        (["params.yaml", "--max-wait-ms", "1e300"], "--max-wait-ms: must be at most 1e+09, or inf"),
        (["params.yaml", "--plot", "p.docx"], "--plot: p.docx: must end in one of "),
        (["params.yaml", "--plot", "no/p.png"], "--plot: no: no such folder; make it, or name"),
    ],
)
def test_what_is_wrong_takes_one_line(
    flags: list[str], said: str, params: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, *flags)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("tokenrouter: error: ")
    assert said in err


def test_what_is_wrong_in_the_file(params: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params.write_text(params.read_text() + "thresholds: [[1, 9]]\nticks: 3\n")
    status, _, err = run(capsys, str(params))
    assert status == 2
    assert "ticks: unknown field; did you mean 'tick_ms'? (from " in err
    params.write_text(params.read_text().replace("ticks: 3\n", ""))
    status, _, err = run(capsys, str(params))
    assert status == 2
    assert "9 requests never wait for large, whose batch takes 2 of 2" in err


def test_a_vector_may_be_too_high_for_some(
    params: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    params.write_text(params.read_text() + "thresholds: [[2, 2], [1, 2], [2, 1]]\n")
    status, out, err = run(capsys, str(params), "--json")
    assert (status, err) == (0, "")
    plan = json.loads(out)
    assert [(row["concurrency"], row["thresholds"]) for row in plan["rows"]] == [
        (2, [1, 2]), (2, [2, 1]), (3, [1, 2]), (3, [2, 2]), (3, [2, 1]),
        (4, [1, 2]), (4, [2, 2]), (4, [2, 1]),
    ]  # fmt: skip
    [note] = plan["notes"]
    assert note.startswith("2,2 left out for 2 requests: [2, 2] can deadlock 2 requests: the sum")


def test_what_sensitivity_leaves_out_is_told(
    params: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "MORE_STEPS", 20_000)
    runs = [{**EXAMPLE["models"][0], "runs": {3: 1}}, EXAMPLE["models"][1]]
    params.write_text(yaml.safe_dump({**EXAMPLE, "models": runs, "concurrency": 2}))
    plan = json.loads(run(capsys, str(params), "--json", "--sensitivity")[1])
    assert plan["notes"][-1].startswith("--sensitivity without hand-overs in bursts")


def test_help_is_there_at_once() -> None:
    script = (
        "import sys; from tokenrouter import cli\n"
        "try: cli.main(['plan', '--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('numpy', 'numba', 'scipy', 'matplotlib', 'torch') if m in sys.modules])"
    )
    said = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert "--sensitivity" in said
    assert said.splitlines()[-1] == "[]"


def test_the_example_of_the_manual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file, the command and what it prints."""
    monkeypatch.chdir(tmp_path)
    [section] = re.findall(r"^## Plan thresholds\n(.*?)^## ", MANUAL, re.MULTILINE | re.DOTALL)
    [file] = re.findall(r"```yaml\n# params.yaml\n(.*?)```", section, re.DOTALL)
    Path("params.yaml").write_text(file)
    [command] = re.findall(r"^tokenrouter plan (params.yaml.*?)(?: +#.*)?$", section, re.MULTILINE)[
        :1
    ]
    [printed] = re.findall(r"```text\n(thresholds, busy.*?)```", section, re.DOTALL)
    _, out, _ = run(capsys, *command.split())
    assert [line.rstrip() for line in out.splitlines()] == printed.splitlines()
