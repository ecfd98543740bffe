"""Reading a configuration: what wins, what is refused, and what the refusal says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tests.configuration.folders import model_folder
from tokenrouter.config import Config, load
from tokenrouter.configuration.sources import DEMO_MODELS
from tokenrouter.errors import ConfigError

pytestmark = pytest.mark.timeout(20)

TIMED: dict[str, Any] = {"name": "fast", "engine": "timed", "step_ms": 6}
ENTRY: dict[str, Any] = {"name": "one", "model_path": "one"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the models ``one`` and ``two``, which share a vocabulary."""
    model_folder(tmp_path / "one")
    model_folder(tmp_path / "two")
    return tmp_path


def read(folder: Path, settings: Any, flags: Any = None, **environment: str) -> Config:
    """Load ``settings`` from a file in ``folder``."""
    path = folder / "routes.yaml"
    path.write_text(settings if isinstance(settings, str) else yaml.safe_dump(settings))
    return load(path, flags, environment)


def test_the_file_of_the_manual(folder: Path) -> None:
    config = read(
        folder,
        """
        served_name: demo
        algorithm: entropy
        router_threshold: 0.45
        prefill: lazy
        port: 30000
        models:
          - {name: small, model_path: one, threshold: 1, dtype: float32}
          - {name: large, model_path: two, threshold: 2, tp_size: 1, max_total_tokens: 20000,
             disable_radix_cache: true}
        """,
    )
    small, large = config.models
    assert config.names == ("small", "large")
    assert config.tokenizer_path == small.model_path == folder / "one"
    assert (small.dtype, small.threshold, small.sglang) == ("float32", 1, {})
    assert (large.max_total_tokens, large.threshold) == (20000, 2)
    assert large.sglang == {"disable_radix_cache": True}


def test_the_environment_wins_over_the_file_and_flags_over_both(folder: Path) -> None:
    settings = {"models": [ENTRY], "port": 1001, "seed": 1, "log_level": "error"}
    flags = {
        "seed": 3,
        "models": {"one": {"threshold": "2"}, "two": {"model_path": folder / "two"}},
    }
    config = read(folder, settings, flags, TOKENROUTER_SEED="2", TOKENROUTER_PORT="1002", OTHER="x")
    assert (config.port, config.seed, config.log_level) == (1002, 3, "error")
    assert config.names == ("one", "two")
    assert config.models[0].threshold == 2
    assert config.models[0].model_path == folder / "one"


def test_flags_alone_are_enough(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    ports = {"one": {"nccl": 4001}}
    config = load(None, {"models": {"one": {"model_path": "one"}}, "ports": ports}, {})
    assert config.models[0].model_path == folder / "one"
    assert config.ports == ports


def test_ports_of_file_and_flags_are_joined(folder: Path) -> None:
    settings = {"models": [ENTRY], "ports": {"one": {"nccl": 1, "peer": "ipc:///p"}}}
    config = read(folder, settings, {"ports": {"one": {"nccl": 2}}})
    assert config.ports == {"one": {"nccl": 2, "peer": "ipc:///p"}}


def test_flags_do_not_hide_a_malformed_file(folder: Path) -> None:
    flags = {"ports": {"one": {"nccl": 2}}}
    with pytest.raises(ConfigError, match=r"ports: must be a mapping, got \[1\]"):
        read(folder, {"models": [ENTRY], "ports": [1]}, flags)
    with pytest.raises(ConfigError, match=r"ports.one: must be a mapping, got 5"):
        read(folder, {"models": [ENTRY], "ports": {"one": 5}}, flags)


def test_a_child_reads_back_what_was_loaded(folder: Path) -> None:
    settings = {
        "models": [
            {**TIMED, "name": "a", "step_ms": {1: 6.0, 4: 7.5}},
            {**TIMED, "name": "b", "step_ms": {"base": 6.0, "per_request": 0.1}},
            {**ENTRY, "disable_radix_cache": True, "mem_fraction_static": 0.5},
        ],
        "algorithm": "tests.subserver.algorithms:Wander",
        "router_threshold": float("inf"),
        "algorithm_args": {},
        "socket_dir": "s",
    }
    config = read(folder, settings)
    assert Config.model_validate_json(config.model_dump_json()) == config
    assert config.models[0].step_ms == {1: 6.0, 4: 7.5}
    assert config.socket_dir == folder / "s"


def test_it_is_frozen(folder: Path) -> None:
    config = read(folder, {"models": [ENTRY]})
    with pytest.raises(ValidationError):
        config.port = 1  # type: ignore[misc]


def test_the_demo_pair_has_a_short_name(folder: Path) -> None:
    config = Config.model_validate({"models": [TIMED]})
    assert config.tokenizer_path == DEMO_MODELS / "small"
    with pytest.raises(ConfigError, match=r"models/tiny does not exist"):
        read(folder, {"models": [{**ENTRY, "model_path": "demo:tiny"}]})


@pytest.mark.parametrize("step_ms", [6, 6.5, 0, {1: 5, 8: 7.5}, {"base": 6}])
def test_forms_of_step_ms(folder: Path, step_ms: Any) -> None:
    assert read(folder, {"models": [{**TIMED, "step_ms": step_ms}]}).models[0].step_ms == step_ms


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({**TIMED, "treshold": 2}, "models.fast.treshold: unknown field; did you mean 'threshold'"),
        ({**ENTRY, "disable_radix_cash": 1}, "models.one.disable_radix_cash: unknown field; did"),
        ({**ENTRY, "disable_radix_cache": "yes"}, "disable_radix_cache: SGLang wants bool, got 'y"),
        ({**ENTRY, "mem_fraction_static": True}, "wants Optional[float], got True"),
        ({**ENTRY, "nccl_port": 1}, "models.one.nccl_port: not taken for a model; set ports:"),
        ({**ENTRY, "speculative_algorithm": "EAGLE"}, "writes one token a step"),
        ({**ENTRY, "dp_size": 2}, "models.one.dp_size: not taken"),
        ({**ENTRY, "tp_size": 2}, "models.one.tp_size: 2 ranks are not served yet"),
        ({**TIMED, "dtype": "float32"}, "models.fast.dtype: engine: timed has no weights"),
        ({**TIMED, "watchdog_timeout": 3}, "models.fast.watchdog_timeout: engine: timed has no"),
        ({"name": "fast", "engine": "timed"}, "models.fast.step_ms: engine: timed needs it"),
        ({**ENTRY, "step_ms": 3}, "models.one.step_ms: only for engine: timed"),
        ({**TIMED, "step_ms": "six"}, "models.fast.step_ms: milliseconds must be a number"),
        ({**TIMED, "step_ms": -1}, "milliseconds must be a number >= 0, got -1"),
        ({**TIMED, "step_ms": float("nan")}, "milliseconds must be a number >= 0, got nan"),
        ({**TIMED, "step_ms": {}}, "an empty table"),
        ({**TIMED, "step_ms": {0: 1}}, "a batch size must be an integer >= 1, got 0"),
        (
            {**TIMED, "step_ms": {"base": 1, "slope": 2}},
            "wants base and per_request, got base, slo",
        ),
        ({**TIMED, "engine": "tmed"}, "models.fast.engine: input should be 'sglang' or 'timed', g"),
        ({"name": "one"}, "models.one.model_path: give the model's folder"),
        ({**ENTRY, "model_path": "three"}, "three does not exist; give the folder"),
        ({**TIMED, "threshold": 0}, "models.fast.threshold: input should be greater than or equal"),
        ({**TIMED, "threshold": 257}, "257 visits can never wait here, as max_batch is 256"),
        ({**TIMED, "threshold": 9, "max_total_tokens": 8}, "as max_total_tokens is 8"),
        ({**ENTRY, "threshold": 9, "max_running_requests": 8}, "as max_running_requests is 8"),
        ({**ENTRY, "context_length": 513}, "513 is more than the 512 tokens this model was made"),
        ({**TIMED, "name": "a/b"}, "models.a/b.name: 'a/b' cannot be a name"),
        ({**TIMED, "name": "a@1"}, "'a@1' cannot be a name"),
        ({**TIMED, "name": "a b"}, "'a b' cannot be a name"),
        ({**TIMED, "name": "front-end"}, "'front-end' is the name of another process"),
        ({"engine": "timed", "step_ms": 1}, "models.0.name: field required"),
        ("fast", "models.0: input should be a valid"),
    ],
)
def test_a_wrong_model_entry_is_named(folder: Path, entry: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(folder, {"models": [entry]})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"models": []},
            "models: none configured; give --config FILE, --model NAME=PATH or --demo",
        ),
        ({"models": [TIMED, TIMED]}, "models: two are named 'fast'; names must differ"),
        ({"models": {"fast": {}}}, "models: input should be a valid tuple"),
        (
            {"router_treshold": 0.1},
            "router_treshold: unknown field; did you mean 'router_threshold'",
        ),
        ({"served_name": "a/b"}, "served_name: 'a/b' cannot be a name"),
        ({"algorithm": "entrpy"}, "algorithm: unknown algorithm 'entrpy'; did you mean 'entropy'?"),
        ({"algorithm": "entropy"}, "algorithm: EntropyRouting routes between 2 models, and 1 are"),
        ({"algorithm": "no_such_module:Mine"}, "algorithm: cannot load 'no_such_module:Mine'"),
        ({"algorithm_args": {"k": 1}}, "algorithm_args: single does not take them"),
        ({"prefill": "hasty"}, "prefill: input should be 'lazy' or 'eager', got 'hasty'"),
        ({"port": 70000}, "port: input should be less than or equal to 65535, got 70000"),
        ({"max_wait_ms": 0}, "max_wait_ms: input should be greater than 0, got 0"),
        ({"socket_dir": "d" * 100}, "bytes, and a UNIX socket's path 107 at most"),
        ({1: 2}, "1: keys should be strings"),
        ({"ports": {"slow": {}}}, "ports: unknown model 'slow'; models are fast"),
        ({"ports": {"fast": {"http": 1}}}, "ports.fast: unknown port 'http'"),
        (
            {"ports": {"fast": {"input": "ipc://x", "peer": "ipc://x"}}},
            "ipc://x is given to 2",
        ),
    ],
)
def test_a_wrong_setting_is_named(folder: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(folder, {"models": [TIMED], **changes})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: [", "routes.yaml: not valid YAML"),
        ("port: 1\nport: 2", "'port' is given twice"),
        ("? [a, b]\n: 1", "routes.yaml: not valid YAML"),
        ("- fast", "must hold a mapping"),
        ("", "must hold a mapping"),
    ],
)
def test_a_file_that_is_no_configuration(folder: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(folder, text)
    assert message in str(error.value)


def test_a_file_that_is_not_there(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"--config: cannot read .*none.yaml: No such file"):
        load(folder / "none.yaml", {}, {})


def test_variables_are_checked(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"TOKENROUTER_PRT: unknown .* did you mean 'port'"):
        read(folder, {"models": [TIMED]}, TOKENROUTER_PRT="1")
    with pytest.raises(ConfigError, match=r"port: .* got 'tcp://x' \(from TOKENROUTER_PORT\)"):
        read(folder, {"models": [TIMED]}, TOKENROUTER_PORT="tcp://x")
    # What Kubernetes sets for a service of this name is nobody's mistake.
    read(folder, {"models": [TIMED]}, TOKENROUTER_SERVICE_HOST="10.0.0.1")


def test_a_flag_for_a_model_that_does_not_exist(folder: Path) -> None:
    with pytest.raises(ConfigError, match="--threshold: no model named 'three'; models are one"):
        read(folder, {"models": [ENTRY]}, {"models": {"three": {"threshold": "2"}}})


def test_it_loads_neither_torch_nor_sglang(folder: Path) -> None:
    path = folder / "routes.yaml"
    path.write_text(yaml.safe_dump({"models": [{**ENTRY, "disable_radix_cache": True}]}))
    script = (
        "import sys, pathlib, tokenrouter.supervisor; from tokenrouter.config import load;"
        "load(pathlib.Path(sys.argv[1]));"
        "print([m for m in ('torch', 'sglang', 'transformers', 'numpy') if m in sys.modules])"
    )
    command = [sys.executable, "-c", script, str(path)]
    assert subprocess.check_output(command, text=True).strip() == "[]"
