"""Reading a configuration: what wins, what is refused, and what the refusal says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tests.configuration.folders import model_folder
from tokenrouter.cli_flags import gather
from tokenrouter.config import Config, ModelConfig, load
from tokenrouter.configuration.sources import DEMO_MODELS
from tokenrouter.errors import ConfigError

pytestmark = pytest.mark.timeout(20)

TIMED: dict[str, Any] = {"name": "fast", "engine": "timed", "step_ms": 6}
ENTRY: dict[str, Any] = {"name": "one", "model_path": "one"}
KEY = re.compile(r"`([\w\[\].]+)`")


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


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("{one: 1}", "models.one: must be a mapping, got 1"),
        ("{1: 2}", "models.1: must be a mapping, got 2"),
        ("{new: null}", "no model named 'new'; models are one"),
        ("{new: {}}", "no model named 'new'; models are one"),
    ],
)
def test_changes_of_the_wrong_form(folder: Path, models: str, message: str) -> None:
    for changes in ({"TOKENROUTER_MODELS": models}, {"flags": {"models": yaml.safe_load(models)}}):
        with pytest.raises(ConfigError) as error:
            read(folder, {"models": [ENTRY]}, **changes)
        assert message in str(error.value)


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


def test_another_algorithm_comes_without_the_settings_of_the_first(folder: Path) -> None:
    models = [ENTRY, {**ENTRY, "name": "two"}]
    settings = {"models": models, "algorithm": "entropy", "router_threshold": 0.1}
    assert read(folder, settings, {"algorithm": "entropy"}).router_threshold == 0.1
    assert read(folder, settings, {"algorithm": "random"}).router_threshold is None
    flags = {"algorithm": "random", "router_threshold": "0.7"}
    assert read(folder, settings, flags).router_threshold == 0.7
    assert read(folder, settings, TOKENROUTER_ALGORITHM="random").router_threshold is None
    environment = {"TOKENROUTER_ALGORITHM": "random", "TOKENROUTER_ROUTER_THRESHOLD": "0.3"}
    assert read(folder, settings, **environment).router_threshold == 0.3
    settings = {"models": models, "algorithm": "cascade", "algorithm_args": {"thresholds": [0.5]}}
    assert read(folder, settings, {"algorithm": "random"}).algorithm_args == {}
    # A threshold of no algorithm in particular is meant for the one that is chosen.
    settings = {"models": models, "router_threshold": 0.2}
    assert read(folder, settings, {"algorithm": "random"}).router_threshold == 0.2


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


def test_a_tokenizer_elsewhere_is_a_path_in_text_which_sglang_wants(folder: Path) -> None:
    two = {"name": "two", "model_path": "two"}
    flags = {"models": {"two": {"tokenizer_path": str(folder / "one")}}}
    config = read(folder, {"models": [{**ENTRY, "tokenizer_path": "two"}, two]}, flags)
    first, second = config.models
    assert first.sglang == {"tokenizer_path": str(folder / "two")}
    assert second.sglang == {"tokenizer_path": str(folder / "one")}
    assert config.tokenizer_path == folder / "two"


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
        ({**ENTRY, "mem_fraction_static": 1.5}, "static: must be above 0 and at most 1, got 1.5"),
        ({**ENTRY, "mem_fraction_static": float("nan")}, "above 0 and at most 1, got nan"),
        ({**ENTRY, "nccl_port": 1}, "models.one.nccl_port: not taken for a model; set ports:"),
        ({**ENTRY, "speculative_algorithm": "EAGLE"}, "writes one token a step"),
        ({**ENTRY, "dp_size": 2}, "models.one.dp_size: not taken"),
        ({**ENTRY, "tp_size": 3}, "models.one.tp_size: "),
        (
            {**ENTRY, "dtype": "float7"},
            "one.dtype: must be auto, half, float16, bfloat16, float or float32, got 'float7'",
        ),
        ({**ENTRY, "tool_call_parser": "qwen99"}, "one.tool_call_parser: must be llama3, qwen25,"),
        ({**ENTRY, "reasoning_parser": "qwen99"}, "one.reasoning_parser: must be deepseek-r1,"),
        ({**ENTRY, "context_length": 6}, "one.context_length: SGLang cannot serve 6 tokens; set 7"),
        ({**ENTRY, "max_total_tokens": 6}, "one.max_total_tokens: SGLang cannot serve 6 tokens"),
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
        (
            {**TIMED, "threshold": 0},
            "models.fast.threshold: must be a number of requests from 1 on",
        ),
        ({**TIMED, "threshold": 257}, "257 visits can never wait here, as max_batch is 256"),
        ({**TIMED, "threshold": 9, "max_total_tokens": 8}, "as max_total_tokens is 8"),
        ({**ENTRY, "threshold": 9, "max_running_requests": 8}, "as max_running_requests is 8"),
        ({**ENTRY, "context_length": 513}, "513 is more than the 512 tokens this model was made"),
        ({**TIMED, "name": "a/b"}, "models.a/b.name: 'a/b' cannot be a name"),
        ({**TIMED, "name": "a@1"}, "'a@1' cannot be a name"),
        ({**TIMED, "name": "a b"}, "'a b' cannot be a name"),
        ({**TIMED, "name": "front-end"}, "'front-end' is the name of another process"),
        ({"engine": "timed", "step_ms": 1}, "models.0.name: field required"),
        ("fast", "models.0: must be a mapping such as"),
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
        (
            {"models": [{**TIMED, "threshold": 4097, "max_batch": 5000}, {**TIMED, "name": "two"}]},
            "models: thresholds of 4097 in all are too high beside automatic ones; lower them to "
            "4096 in all",
        ),
        ({"models": {"fast": {}}}, "models: input should be a valid tuple"),
        (
            {"router_treshold": 0.1},
            "router_treshold: unknown field; did you mean 'router_threshold'",
        ),
        ({"served_name": "a/b"}, "served_name: 'a/b' cannot be a name"),
        ({"algorithm": "entrpy"}, "algorithm: unknown algorithm 'entrpy'; did you mean 'entropy'?"),
        ({"algorithm": "entropy"}, "algorithm: entropy routes between 2 models, and 1 are"),
        ({"algorithm": "no_such_module:Mine"}, "algorithm: cannot load 'no_such_module:Mine'"),
        ({"algorithm_args": {"k": 1}}, "algorithm_args: single does not take them"),
        (
            {"algorithm": "cascade", "algorithm_args": {"threshold": [1]}},
            "got an unexpected keyword argument 'threshold'; did you mean 'thresholds'?",
        ),
        ({"prefill": "hasty"}, "prefill: input should be 'lazy' or 'eager', got 'hasty'"),
        ({"port": 70000}, "port: input should be less than or equal to 65535, got 70000"),
        ({"max_wait_ms": 0}, "max_wait_ms: input should be greater than 0, got 0"),
        ({"socket_dir": "d" * 100}, "bytes, and a UNIX socket's path 107 at most"),
        ({1: 2}, "1: keys should be strings"),
        ({"ports": {"slow": {}}}, "ports: unknown model 'slow'; models are fast"),
        ({"ports": {"fist": {}}}, "unknown model 'fist'; did you mean 'fast'?; models are fast"),
        ({"ports": {"fast": {"http": 1}}}, "ports.fast: unknown port 'http'"),
        ({"ports": {"fast": {"pear": 1}}}, "unknown port 'pear'; did you mean 'peer'?; ports are"),
        (
            {"ports": {"fast": {"input": "ipc://x", "peer": "ipc://x"}}},
            "ipc://x is given to 2",
        ),
        ({"ports": {"fast": {"nccl": 30123}}, "port": 30123}, "30123 is given to 2 ports"),
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
    with pytest.raises(ConfigError, match=r"none.yaml: cannot be read: No such file"):
        load(folder / "none.yaml", {}, {})


def test_variables_are_checked(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"_PRT: unknown .* did you mean TOKENROUTER_PORT\?"):
        read(folder, {"models": [TIMED]}, TOKENROUTER_PRT="1")
    with pytest.raises(ConfigError, match=r"port: .* got 'tcp://x' \(from TOKENROUTER_PORT\)"):
        read(folder, {"models": [TIMED]}, TOKENROUTER_PORT="tcp://x")
    with pytest.raises(ConfigError, match=r"TOKENROUTER_ZZZ: unknown environment variable; unset"):
        read(folder, {"models": [TIMED]}, TOKENROUTER_ZZZ="1")
    with pytest.raises(ConfigError, match=r"TOKENROUTER_ALGORITHM_ARGS: not valid YAML"):
        read(folder, {"models": [TIMED]}, TOKENROUTER_ALGORITHM_ARGS="{")


def test_what_kubernetes_sets_for_a_service_of_this_name_is_nobodys_mistake(folder: Path) -> None:
    variables = {
        "TOKENROUTER_SERVICE_HOST": "10.0.0.1",
        "TOKENROUTER_SERVICE_PORT": "80",
        "TOKENROUTER_SERVICE_PORT_HTTP": "80",
        "TOKENROUTER_PORT": "tcp://10.0.0.1:80",
        "TOKENROUTER_PORT_80_TCP": "tcp://10.0.0.1:80",
        "TOKENROUTER_PORT_80_TCP_ADDR": "10.0.0.1",
        "TOKENROUTER_WEB_PORT_80_TCP_PROTO": "tcp",
    }
    assert read(folder, {"models": [TIMED], "port": 5}, **variables).port == 5


def test_variables_for_what_is_no_scalar(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    config = load(
        None,
        None,
        {
            "TOKENROUTER_MODELS": "[{name: one, model_path: one, threshold: 3}, {name: two, "
            "engine: timed, step_ms: {base: 1, per_request: 0.5}}]",
            "TOKENROUTER_ALGORITHM": "cascade",
            "TOKENROUTER_ALGORITHM_ARGS": '{"thresholds": [0.5]}',
            "TOKENROUTER_PORTS": "{one: {nccl: 4001}}",
        },
    )
    assert [model.threshold for model in config.models] == [3, "auto"]
    assert config.models[0].model_path == folder / "one"
    assert config.algorithm_args == {"thresholds": [0.5]}
    assert config.ports == {"one": {"nccl": 4001}}


def test_variables_of_models(folder: Path) -> None:
    models = [{**ENTRY, "name": "a-0.6b", "threshold": 1}, {**ENTRY, "name": "b"}]
    config = read(
        folder,
        {"models": models},
        gather({"model": [f"new={folder / 'two'}"], "set": ["b.max_batch=7"]}),
        TOKENROUTER_MODELS_A_0_6B_THRESHOLD="4",
        TOKENROUTER_MODELS_A_0_6B_DISABLE_RADIX_CACHE="true",
        TOKENROUTER_MODELS_B_MAX_BATCH="3",
        TOKENROUTER_MODELS_B_LOAD_FORMAT="dummy",
        TOKENROUTER_MODELS_B_CUDA_GRAPH_BS="[1, 2]",
        TOKENROUTER_MODELS_NEW_DTYPE="float16",
    )
    first, second, new = config.models
    assert (first.threshold, first.sglang) == (4, {"disable_radix_cache": True})
    assert second.max_batch == 7  # flags win
    assert second.sglang == {"load_format": "dummy", "cuda_graph_bs": [1, 2]}
    assert (new.name, new.dtype) == ("new", "float16")


def test_names_that_variables_cannot_tell_apart(folder: Path) -> None:
    models = [{**TIMED, "name": name} for name in ("a", "a_max", "b-1", "b.1")]
    # The longest name that leaves an argument: "a" with max_batch, "a_max" with threshold.
    config = read(
        folder,
        {"models": models},
        TOKENROUTER_MODELS_A_MAX_BATCH="9",
        TOKENROUTER_MODELS_A_MAX_THRESHOLD="2",
    )
    assert (config.models[0].max_batch, config.models[1].threshold) == (9, 2)
    with pytest.raises(ConfigError, match=r"B_1_THRESHOLD: means b-1 or b.1; rename one"):
        read(folder, {"models": models}, TOKENROUTER_MODELS_B_1_THRESHOLD="2")


def test_wrong_variables_of_models(folder: Path) -> None:
    with pytest.raises(ConfigError) as error:
        read(
            folder,
            {"models": [TIMED]},
            TOKENROUTER_MODELS_SLOW_THRESHOLD="2",
            TOKENROUTER_MODELS_FAST="2",
        )
    assert error.value.problems == (
        "TOKENROUTER_MODELS_SLOW_THRESHOLD: names no model; models are FAST (fast)",
        "TOKENROUTER_MODELS_FAST: names no model; models are FAST (fast)",
    )
    with pytest.raises(ConfigError) as error:
        read(
            folder,
            {"models": [TIMED]},
            TOKENROUTER_MODELS_FAST_TRESHOLD="2",
            TOKENROUTER_MODELS_FAST_STEP_MS="-1",
        )
    assert error.value.problems == (
        "models.fast.step_ms: milliseconds must be a number >= 0, got -1 "
        "(from TOKENROUTER_MODELS_FAST_STEP_MS)",
        "models.fast.treshold: unknown field; did you mean 'threshold'? "
        "(from TOKENROUTER_MODELS_FAST_TRESHOLD)",
    )


def test_every_problem_is_told_at_once(folder: Path) -> None:
    settings = {
        "prot": 1,
        "prefill": "hasty",
        "algorithm": "entrpy",
        "ports": {"big": {}},
        "models": [
            {**ENTRY, "treshold": 1, "dp_size": 2, "threshold": 300, "context_length": 600},
            {**TIMED, "dtype": "float32", "max_batch": 0},
            {**ENTRY, "name": "two", "model_path": "nowhere"},
        ],
    }
    with pytest.raises(ConfigError) as error:
        read(folder, settings, TOKENROUTER_SEED="x")
    said = error.value.problems
    starts = (
        "models.one.treshold: unknown field",
        "models.one.dp_size: not taken",
        "models.one.threshold: 300 visits can never wait",
        "models.fast.max_batch: input should be greater",
        "models.fast.dtype: engine: timed has no weights",
        "prefill: input should be",
        "seed: input should be a valid integer, unable to parse string as an integer, got 'x' (fr",
        "prot: unknown field; did you mean 'port'?",
        "algorithm: unknown algorithm",
        "models.one.context_length: 600 is more",
        "models.two.model_path: ",
        "ports: unknown model 'big'",
    )
    assert len(said) == len(starts)
    for start in starts:
        assert sum(problem.startswith(start) for problem in said) == 1, start
    assert str(error.value) == "\n  - ".join(("12 problems:", *said))


def test_an_entry_that_cannot_be_judged_does_not_hide_other_problems(folder: Path) -> None:
    entries = [{"name": "one", "engine": "tmed"}, "x", {**TIMED, "threshold": 0}]
    entries.append({**ENTRY, "name": "a/b", "model_path": "nope"})
    settings = {"models": entries, "port": -1, "algorithm": "entrpy"}
    with pytest.raises(ConfigError) as error:
        read(folder, settings)
    assert [problem.partition(":")[0] for problem in error.value.problems] == [
        "models.one.engine",
        "models.1",
        "models.fast.threshold",
        "models.a/b.name",
        "port",
        "algorithm",
        "models.a/b.model_path",
    ]


def test_problems_say_where_the_file_is_wrong(folder: Path) -> None:
    text = """\
port: x
models:
  - name: one
    model_path: nope
  - {name: two, model_path: two, threshold: 0}
  - {name: three}
"""
    with pytest.raises(ConfigError) as error:
        read(folder, text, {"models": {"two": {"dtyp": 1}}})
    found = {each.partition(": ")[0]: each for each in error.value.problems}
    for field, line in (
        ("port", 1),
        ("models.one.model_path", 4),
        ("models.two.threshold", 5),
        ("models.three.model_path", 6),
    ):
        assert found[field].endswith(f" (from {folder / 'routes.yaml'}:{line})"), found
    entry = {**ENTRY, "model_path": folder / "one", "threshold": 0}
    with pytest.raises(ConfigError) as error:
        read(folder, text, {"models": [entry], "port": 1})
    assert error.value.problems == (
        "models.one.threshold: must be a number of requests from 1 on, or auto; got 0",
    ), "the list of the file, and so its lines, are replaced"


def test_a_secret_is_never_shown(folder: Path) -> None:
    config = read(folder, {"models": [TIMED]}, TOKENROUTER_API_KEY="sesame")
    assert config.api_key == "sesame"
    assert "sesame" not in repr(config)
    assert "sesame" not in str(config.public())
    with pytest.raises(
        ConfigError, match=r"^api_key: input should be a valid string \(from .*routes.yaml:1\)$"
    ):
        read(folder, {"models": [TIMED], "api_key": 5359})


def test_a_flag_for_a_model_that_does_not_exist(folder: Path) -> None:
    with pytest.raises(ConfigError, match="--tp: no model named 'three'; models are one"):
        read(folder, {"models": [ENTRY]}, gather({"tp": ["three=2"]}))


def test_the_manual_lists_every_key_and_no_other() -> None:
    manual = (Path(__file__).parent.parent / "docs" / "configuration.md").read_text()
    [table] = re.findall(r"^\| key \|.*?\|\n(?=\n)", manual, re.MULTILINE | re.DOTALL)
    listed = [key for row in table.splitlines() for key in KEY.findall(row.split("|")[1])]
    keys = {*Config.model_fields, *(f"models[].{name}" for name in ModelConfig.model_fields)}
    assert sorted(listed) == sorted(keys - {"models", "models[].sglang"})


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
