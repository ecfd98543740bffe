"""What the supervisor says once a deployment is up."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tokenrouter.config import Config
from tokenrouter.ipc.ports import choose_ports
from tokenrouter.ipc.supervision import MemberReady, Roster
from tokenrouter.processes.protocol import ChildSpec, Launch
from tokenrouter.processes.summary import Phases, summary

URL = "http://127.0.0.1:30000"


@pytest.fixture
def lines(tmp_path: Path) -> list[tuple[str, dict[str, Any]]]:
    config = Config.model_validate(
        {
            "served_name": "demo", "algorithm": "entropy", "router_threshold": 0.45,
            "algorithms": {"careful": {"algorithm": "entropy", "router_threshold": 0.1}},
            "algorithm_args": {"note": "two words"}, "api_key": "very-secret",
            "models": [
                {"name": "small", "model_path": tmp_path, "dtype": "float32", "threshold": 1},
                {"name": "large", "model_path": tmp_path, "tp_size": 2, "base_gpu_id": 1,
                 "threshold": 3},
                {"name": "clock", "engine": "timed", "step_ms": 2.0},
            ],
        }
    )  # fmt: skip
    ready = tuple(
        MemberReady(i, 1000 * (i + 1), 16 * (i + 1), 512 * (3 - i), 320, (), "") for i in range(3)
    )
    children = (
        ChildSpec("small", "", 0, (0,)), ChildSpec("large", "", 1), ChildSpec("clock", "", 2),
    )  # fmt: skip
    ports = choose_ports(tmp_path, config.names, {})
    launch = Launch(config.model_dump_json(), ports, children, "", shared=False)
    phases = Phases(imports=2.0, loads={"small": 1.25, "large": 3.5})
    found = list(
        summary(config, Roster(ready, (0, 0, 0)), launch, URL, phases, {"small": 11, "large": 12})
    )
    return [(text, dict(fields)) for text, fields in found]


def test_every_line_is_one_line_and_has_fields(lines: list[tuple[str, dict[str, Any]]]) -> None:
    assert [text.split(":")[0] for text, _ in lines] == [
        "serving 'demo' at http", "algorithm 'careful'", "member 'small'", "member 'large'",
        "member 'clock'", "limits", "processes", "ready in 0.0 s",
    ]  # fmt: skip
    for text, fields in lines:
        assert "\n" not in text
        assert json.dumps(fields)
        assert "very-secret" not in text + json.dumps(fields)


def test_algorithm_and_its_settings(lines: list[tuple[str, dict[str, Any]]]) -> None:
    text, fields = lines[0]
    assert "algorithm=entropy router_threshold=0.45 algorithm_args=note:two words" in text
    assert fields["router_threshold"] == 0.45
    assert fields["url"] == URL


def test_further_algorithms(lines: list[tuple[str, dict[str, Any]]]) -> None:
    text, fields = lines[1]
    assert text == "algorithm 'careful': algorithm=entropy router_threshold=0.1"
    assert fields["preset"] == {"name": "careful", "algorithm": "entropy", "router_threshold": 0.1}


def test_members(lines: list[tuple[str, dict[str, Any]]]) -> None:
    small, large, clock = (fields["member"] for _, fields in lines[2:5])
    assert (small["dtype"], small["cores"], small["gpus"]) == ("float32", [0], [0])
    assert (large["dtype"], large["tp_size"], large["gpus"]) == ("auto", 2, [1, 2])
    assert (large["threshold"], large["pool_tokens"], large["max_visits"]) == (3, 2000, 32)
    assert "cores" not in large
    assert not {"dtype", "tp_size", "gpus", "model_path"} & set(clock)
    assert "gpus=1,2" in lines[3][0]


def test_limits_are_the_smallest(lines: list[tuple[str, dict[str, Any]]]) -> None:
    limits = lines[5][1]["limits"]
    assert (limits["context_length"], limits["pool_tokens"], limits["max_visits"]) == (
        512, 1000, 16,
    )  # fmt: skip
    assert limits["api_key"] == "required"


def test_processes_can_be_found(lines: list[tuple[str, dict[str, Any]]]) -> None:
    text, fields = lines[6]
    assert fields["processes"] == {"supervisor": os.getpid(), "small": 11, "large": 12}
    assert text == f"processes: supervisor={os.getpid()} small=11 large=12"


def test_how_long_it_took(lines: list[tuple[str, dict[str, Any]]]) -> None:
    text, fields = lines[7]
    assert text.endswith("s: imports 2.0 s, small 1.2 s, large 3.5 s")
    assert fields["phases_s"] == {"imports": 2.0, "small": 1.25, "large": 3.5}


def test_loads_are_counted_from_the_fork() -> None:
    phases = Phases()
    phases.begun -= 100
    phases.ready("spawned")
    phases.imported(4.0)
    phases.ready("forked")
    assert 100 <= phases.loads["spawned"] < 110
    assert phases.loads["forked"] < 10
