"""A calibration of real servers: timed members whose parameters are known, and the demo pair."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.integration.server import Server
from tokenrouter import cli
from tokenrouter.demo import task
from tokenrouter.throughput_model.planning import parameter_file

pytestmark = pytest.mark.timeout(110)

LATENCIES = {"small": 2.0, "large": 7.0}
P = 0.3
OVERHEAD_MS = 2.0
"""What a step may take longer on a busy machine, on average."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    models = [
        {"name": name, "engine": "timed", "step_ms": ms, "threshold": 1}
        for name, ms in LATENCIES.items()
    ]
    config = {"served_name": "timed", "algorithm": "random", "router_threshold": P}
    with Server({**config, "models": models}) as server:
        yield server


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """What a calibration says on stdout and on stderr."""
    with pytest.raises(SystemExit) as status:
        cli.main(["calibrate", *arguments])
    said = capsys.readouterr()
    assert not status.value.code, said.err
    return said.out, said.err


def test_parameters_of_timed_members(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "params.yaml"
    flags = ["--concurrency", "1", "3", "--seconds", "2", "--out", str(file), "--json"]
    said, progress = run(capsys, server.url, *flags)
    found: dict[str, Any] = json.loads(said)
    assert (found["served_name"], found["router_threshold"], progress) == ("timed", P, "")
    for model in found["models"]:
        nominal = LATENCIES[model["name"]]
        for batch in model["batches"]:
            if batch["steps"] >= 50:
                noise = 4 * batch["stderr_ms"]
                assert nominal - 0.01 <= batch["ms"] <= nominal + OVERHEAD_MS + noise, batch
        assert model["geometric"]
    stay, leave = found["models"][0]["hops"]
    assert leave["to"] == "large"
    assert abs(leave["share"] - P) < 4.5 * leave["stderr"] < 0.1
    assert (stay["committed"], leave["committed"]) == (1.0, 0.0)
    assert [each["concurrency"] for each in found["concurrency"]] == [1, 3]
    alone, three = found["concurrency"]
    assert alone["best"]["thresholds"] == [1, 1]
    assert alone["tokens_per_s"] == pytest.approx(alone["predicted_tokens_per_s"], rel=0.2)
    assert three["tokens_per_s"] > 1.5 * alone["tokens_per_s"]
    parameters = parameter_file.read(file)
    assert parameters.concurrency == (1, 3)
    assert parameters.system.routing[0, 1] == pytest.approx(leave["share"])
    server.assert_clean()


def test_a_router_threshold_and_parameters_at_it(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--concurrency", "4", "--seconds", "1", "--share", "0.2", "--max-tokens", "32"]
    said, progress = run(capsys, server.url, *flags)
    tried = re.findall(r"^router threshold (\S+): share \S+%$", progress, re.MULTILINE)
    assert sorted(map(float, tried)) == list(map(float, re.findall(r"│ (\S+) +│ +\S+% ±", said)))
    answer = re.search(r"for 0.2: router_threshold: (\S+) gives (\S+)% ± (\S+)% \(measured", said)
    assert answer is not None, said
    threshold, share, stderr = map(float, answer.groups())
    assert abs(share - 20) < 2 and abs(100 * threshold - share) < 4 * stderr < 12
    assert said.startswith(f"timed: random at {threshold:g}, 16 prompts")
    leave = re.search(r"small +│ large +│ (\S+) ± (\S+)", said)
    assert leave is not None, said
    assert abs(float(leave[1]) - threshold) < 4.5 * float(leave[2])
    server.assert_clean()


@pytest.mark.slow
def test_the_share_of_the_demo_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "problems"
    problems = itertools.islice(task.problems("held_out", 3), 12)
    file.write_text("\n".join(problem.question for problem in problems))
    flags = ["--seconds", "0", "--share", "0.1", "--prompts", str(file), "--max-tokens", "100"]
    said, _ = run(capsys, "--demo", *flags, "--json")
    found = json.loads(said)
    (answer,) = found["shares"]
    assert answer["kind"] == "measured" and answer["share"] == pytest.approx(0.1, abs=0.01)
    assert 0 < answer["threshold"] < 0.1, "the share at 0.1 is some 6 %"
    assert found["models"] is None and found["prompts"] == 12
    shares = [point["share"] for point in found["tried"]]
    assert shares == sorted(shares, reverse=True) and len(shares) <= 10


@pytest.mark.slow
def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    config, out = tmp_path / "config.yaml", tmp_path / "params.yaml"
    models = [{"name": name, "engine": "timed", "step_ms": 2} for name in LATENCIES]
    config.write_text(yaml.safe_dump({"algorithm": "random", "models": models}))
    flags = ["--config", str(config), "--seconds", "60", "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-m", "tokenrouter", "calibrate", *flags], stderr=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + 60
        while len(children := psutil.Process(process.pid).children(recursive=True)) < 5:
            assert time.monotonic() < deadline, children
            time.sleep(0.1)
        time.sleep(2.0)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 130, said
    assert b"Traceback" not in said
    assert not any(child.is_running() for child in children)
    assert not out.exists()
