"""The command line: from flags to a configuration, and from errors to exit statuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.configuration.folders import model_folder
from tokenrouter import __version__, cli, supervisor
from tokenrouter.cli_options import STRUCTURED
from tokenrouter.config import Config
from tokenrouter.configuration.sources import DEMO_MODELS
from tokenrouter.errors import StartupError
from tokenrouter.processes import logs, titles
from tokenrouter.schedulers.random import Random

pytestmark = pytest.mark.timeout(20)

Run = Callable[..., int]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Config]:
    """Configurations that were served, instead of serving them; works in ``tmp_path``."""
    configs: list[Config] = []

    def serve(config: Config, announce: Callable[[str], None], **options: Any) -> int:
        configs.append(config)
        announce("http://127.0.0.1:30000")
        return 0

    monkeypatch.setattr(supervisor, "serve", serve)
    monkeypatch.setattr(titles, "setproctitle", lambda title: None)
    monkeypatch.setattr(logs, "set_up", lambda *options: None)
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        model_folder(tmp_path / name)
    return configs


def run(*arguments: str) -> int:
    """The exit status of a command line."""
    with pytest.raises(SystemExit) as status:
        cli.main(arguments)
    return int(status.value.code or 0)


class Tunable(Random):
    """An algorithm with an argument of its own beside the threshold."""

    def __init__(
        self, members: Sequence[str], router_threshold: float | None = None, width: int = 1
    ) -> None:
        super().__init__(members, router_threshold)
        self.width = width


def test_every_flag_reaches_the_configuration(served: list[Config], tmp_path: Path) -> None:
    flags = (
        "serve --model small=one --model large=two --threshold small=1 large=3"
        ' --algorithm tests.test_cli:Tunable --router-threshold 0.45 --algorithm-args {"width":3}'
        " --served-name routed --prefill eager --host 0.0.0.0 --port 0 --seed 7 --max-wait-ms 5.5"
        " --socket-dir s --member-port small.nccl=4001 large.peer=ipc:///p --log-level error"
        " --tp small=1 --set small.max_batch=8 large.disable_radix_cache=true --api-key sesame"
        " --max-requests 9 --max-body-bytes 999 --max-body-values 888 --on-failure stop"
        " --max-restarts 1 --restart-window-s 2 --hang-timeout-s 3 --drain-timeout-s 4"
        ' --log-format json --objective {"itl_p99_ms":70} --record-decisions d'
    )
    assert run(*flags.split()) == 0
    [config] = served
    assert [(m.name, m.model_path, m.threshold) for m in config.models] == [
        ("small", tmp_path / "one", 1),
        ("large", tmp_path / "two", 3),
    ]
    assert config.models[0].max_batch == 8
    assert config.models[1].sglang == {"disable_radix_cache": True}
    assert config.model_dump(exclude={"models"}) == {
        "served_name": "routed",
        "algorithm": "tests.test_cli:Tunable",
        "algorithm_args": {"width": 3},
        "router_threshold": 0.45,
        "algorithms": {},
        "prefill": "eager",
        "host": "0.0.0.0",
        "port": 0,
        "ports": {"small": {"nccl": 4001}, "large": {"peer": "ipc:///p"}},
        "socket_dir": tmp_path / "s",
        "seed": 7,
        "max_wait_ms": 5.5,
        "objective": {"itl_p99_ms": 70.0},
        "record_decisions": tmp_path / "d",
        "api_key": "sesame",
        "max_requests": 9,
        "max_body_bytes": 999,
        "max_body_values": 888,
        "on_failure": "stop",
        "max_restarts": 1,
        "restart_window_s": 2.0,
        "hang_timeout_s": 3.0,
        "drain_timeout_s": 4.0,
        "log_level": "error",
        "log_format": "json",
    }


def test_every_field_has_a_flag_that_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("serve", "--help") == 0
    said = capsys.readouterr().out
    for name, field in Config.model_fields.items():
        if name not in STRUCTURED:
            assert f"--{name.replace('_', '-')} " in said
            assert field.description


def test_several_problems_are_listed(
    served: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = "serve --model a=one --port x --threshold a=0 --set a.dtyp=float16"
    assert run(*flags.split()) == 2
    assert capsys.readouterr().err == (
        "tokenrouter: error: 3 problems:\n"
        "  - models.a.threshold: must be a number of requests from 1 on, or auto; got '0' "
        "(from --threshold)\n"
        "  - models.a.dtyp: unknown field; did you mean 'dtype'? (from --set)\n"
        "  - port: input should be a valid integer, unable to parse string as an integer, got 'x' "
        "(from --port)\n"
    )


def test_a_key_does_not_stay_in_the_list_of_processes(tmp_path: Path) -> None:
    script = (
        "import pathlib, tokenrouter.supervisor; from tokenrouter import cli;"
        "show = lambda *rest: print(pathlib.Path('/proc/self/cmdline').read_bytes()) or 0;"
        "tokenrouter.supervisor.serve = show; cli.main()"
    )
    flags = ("serve", "--demo", "--api-key", "sesame", "--port", "0")
    said = subprocess.check_output([sys.executable, "-c", script, *flags], text=True)
    assert "tokenrouter[demo:0]::supervisor" in said
    assert "sesame" not in said


def test_flags_change_a_file(served: list[Config], tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("port: 1\nmodels: [{name: small, model_path: one}]")
    assert run("serve", "--config", "f.yaml", "--threshold", "small=4", "--port", "30001") == 0
    assert (served[0].port, served[0].models[0].threshold) == (30001, 4)


def test_the_demo(served: list[Config], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("serve", "--demo", "--port", "0") == 0
    config = served[0]
    assert [model.model_path for model in config.models] == [
        DEMO_MODELS / "small",
        DEMO_MODELS / "large",
    ]
    assert (config.served_name, config.algorithm, config.router_threshold) == (
        "demo",
        "entropy",
        0.1,
    )
    said = capsys.readouterr().out
    assert said.startswith("serving demo at http://127.0.0.1:30000\n")
    assert "curl http://127.0.0.1:30000/v1/chat/completions" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("serve", "models: none configured"),
        (
            "serve --config none.yaml",
            "none.yaml: cannot be read: No such file or directory; give the path",
        ),
        ("serve --demo --config f.yaml", "--demo: brings its own configuration"),
        ("serve --model one", "--model: wants NAME=PATH, got 'one'"),
        ("serve --treshold 1 --demo", "--treshold: unknown flag; did you mean '--threshold'?"),
        ("serve --dtype x", "--dtype: unknown flag; of a model, it is --set NAME.dtype=VALUE"),
        ("serve --model a=one --set a=3", "--set: wants NAME.ARGUMENT=VALUE, got 'a=3'"),
        ("serve --model a=one --set a.max_batch=[", "--set: not valid YAML"),
        ("serve --model a=one --threshold b=1", "--threshold: no model named 'b'; models are a"),
        ("serve --model a=one --threshold a=x", "models.a.threshold: must be a number of requests"),
        ("serve --model a=one --member-port nccl=1", "wants NAME.PORT=VALUE, got 'nccl=1'"),
        ("serve --model a=one --algorithm-args {", "--algorithm-args: not JSON"),
        ("serve --model a=one --algorithm-args 1", "--algorithm-args: wants a JSON object"),
    ],
)
def test_a_wrong_configuration_is_one_line_and_status_2(
    served: list[Config], capsys: pytest.CaptureFixture[str], arguments: str, message: str
) -> None:
    assert run(*arguments.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("tokenrouter: error: ")
    assert message in said
    assert said.count("\n") == 1
    assert not served


def test_check_says_what_would_be_served(
    served: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("check", "--demo", "--port", "0", "--gpus", "0") == 0
    said = capsys.readouterr().out
    assert "model 'demo': algorithm entropy at 0.1, lazy prefill" in said
    assert """model 'demo:r2r': algorithm r2r, {"router": "/""" in said
    assert "a routed request may have 2048 tokens: the context length of small" in said
    rows = [line.split() for line in said.splitlines()]
    assert ["large", "sglang", "float32", "CPU", "2", "256"] in [row[:6] for row in rows]
    assert not served


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("host: ..", "host: '..' is not an address"),
        (f"host: {'a' * 70}.org", "is not an address: no host can be called so"),
        ("a: " + "[" * 3000, "not valid YAML: nested too deeply"),
        ("a: 2026-13-01", "not valid YAML: month must be in 1..12"),
        ("a: !!int ''", "not valid YAML: "),
        ("socket_dir: /proc/x/y", "socket_dir: cannot make /proc/x/y: No such file"),
        ('socket_dir: "/tmp/a\\0"', "socket_dir: '/tmp/a\\x00' cannot be a path"),
        ('socket_dir: "/tmp/\\ud800"', "not valid YAML: '/tmp/\\ud800' holds half a character"),
        (f"socket_dir: /tmp/{'a' * 300}", "a UNIX socket's path 107 at most"),
        ("socket_dir: ~nobody-here/x", "socket_dir: ~nobody-here/x: no such user's home"),
        ('api_key: "é"', "api_key: no HTTP header can carry it"),
        ('api_key: "sesame\\n"', "api_key: no HTTP header can carry it"),
        (f"models: [{{name: m, model_path: {'a' * 5000}}}]", "cannot be used: File name too long"),
        ('models: [{name: m, model_path: "a\\0"}]', "models.m.model_path: "),
        (
            f"models: [{{name: m, model_path: one, tokenizer_path: {'a' * 5000}}}]",
            "models.m.tokenizer_path: ",
        ),
    ],
)
def test_no_value_of_a_file_breaks_the_check(
    served: list[Config],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    text: str,
    message: str,
) -> None:
    model = "" if text.startswith("models") else "\nmodels: [{name: m, model_path: one}]"
    (tmp_path / "routes.yaml").write_text(f"{text}\n{model}\n")
    assert run("check", "--config", str(tmp_path / "routes.yaml"), "--port", "0") == 2
    said = capsys.readouterr().err
    assert said.startswith("tokenrouter: error: ")
    assert message in said
    assert "sesame" not in said


def test_check_tells_programs_of_whatever_is_there(
    served: list[Config], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "routes.yaml").write_text(
        f"max_requests: {10**30}\nalgorithm_args: {{b: .nan, a: [2026-01-01]}}\n"
        "algorithm: no\nports: {one: {nccl: 99999}}\nmodels: [{name: one, model_path: one}]\n"
    )
    assert run("check", "--config", str(tmp_path / "routes.yaml"), "--port", "0", "--json") == 2
    told = json.loads(capsys.readouterr().out)
    assert told["config"]["algorithm_args"] == {"b": None, "a": ["2026-01-01"]}
    assert any("ports.one.nccl: must be a TCP port" in each for each in told["problems"])


def test_check_lists_everything_that_is_wrong(
    served: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    # Of the file and of the machine, in one go.
    flags = "--model a=one b=none --gpus 1 --gpu-gib 80 --set a.base_gpu_id=3 --api-key sesame"
    assert run("check", *flags.split(), "--port", "0") == 2
    said = capsys.readouterr()
    assert said.err.startswith("tokenrouter: error: 2 problems:\n  - models.b.model_path: ")
    assert "models.a.tp_size: 1 ranks need the GPUs 3" in said.err
    assert run("check", *flags.split(), "--port", "0", "--json") == 2
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert (told["ok"], len(told["problems"]), said.err) == (False, 2, "")
    assert "sesame" not in said.out
    assert run("check", "--model", "a=one", "--port", "0", "--gpus", "0", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"]
    assert told["members"][0]["context_length"] == 512


def test_the_configuration_in_force_is_shown(
    served: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("config", "--demo", "--port", "77") == 0
    said = capsys.readouterr().out.splitlines()
    assert "port: 77  # --port" in said
    assert f'served_name: "demo"  # {cli.DEMO_CONFIG}:3' in said
    assert run("config", "--demo", "--port", "x") == 2


def test_a_failed_start_is_status_1(
    served: list[Config], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: Any) -> int:
        raise StartupError("large: out of memory")

    monkeypatch.setattr(supervisor, "serve", fail)
    assert run("serve", "--model", "a=one") == 1
    assert capsys.readouterr().err == "tokenrouter: error: large: out of memory\n"


def test_the_status_of_the_supervisor_is_ours(
    served: list[Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "serve", lambda config, announce: 1)
    assert run("serve", "--model", "a=one") == 1


def test_both_ways_to_call_it() -> None:
    version = [sys.executable, "-c", "from tokenrouter.cli import main; main()", "--version"]
    assert subprocess.check_output(version, text=True) == f"tokenrouter {__version__}\n"
    server = [sys.executable, "-m", "tokenrouter.launch_server", "--model", "one"]
    result = subprocess.run(server, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "tokenrouter: error: --model: wants NAME=PATH, got 'one'\n"


def test_the_package_itself_loads_nothing() -> None:
    script = (
        "import sys; before = set(sys.modules); import tokenrouter;"
        "heavy = ('pydantic', 'httpx', 'typer', 'yaml', 'msgspec');"
        "print([m for m in heavy if m in sys.modules and m not in before]);"
        "tokenrouter.Engine;"
        "print([m for m in ('torch', 'sglang', 'numpy', 'zmq') if m in sys.modules])"
    )
    lines = subprocess.check_output([sys.executable, "-c", script], text=True).splitlines()
    assert lines == ["[]", "[]"]


def test_it_starts_without_what_it_does_not_need() -> None:
    script = (
        "import sys, tokenrouter.cli, tokenrouter.configuration.report;"
        "print([m for m in ('torch', 'sglang', 'numpy', 'httpx', 'zmq') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"
