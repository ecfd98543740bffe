"""Further algorithms of a deployment: where they come from, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.configuration.folders import model_folder
from tokenrouter.cli_flags import gather
from tokenrouter.config import Config, load, read, served
from tokenrouter.configuration.dump import dump
from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.signals import Entropy
from tokenrouter.schedulers.single import Single

pytestmark = pytest.mark.timeout(20)

TIMED: dict[str, Any] = {"engine": "timed", "step_ms": 1}
MODELS = [{"name": "a", **TIMED}, {"name": "b", **TIMED}]


def file(folder: Path, algorithms: Any) -> Path:
    path = folder / "routes.yaml"
    path.write_text(yaml.safe_dump({"models": MODELS, "algorithms": algorithms}))
    return path


def test_the_algorithm_is_that_of_the_name_unless_it_is_said(tmp_path: Path) -> None:
    config = load(file(tmp_path, {"random": None, "x": {"algorithm": "entropy"}}), None, {})
    assert {name: each.algorithm for name, each in config.algorithms.items()} == {
        "random": "random",
        "x": "entropy",
    }
    assert Config.model_validate_json(config.model_dump_json()) == config


def test_a_preset_of_a_built_in_algorithm_may_have_its_name(tmp_path: Path) -> None:
    target = "tokenrouter.schedulers.random:Random"
    for algorithm in ("random", target):
        preset = {"algorithm": algorithm, "router_threshold": 0.1}
        assert load(file(tmp_path, {"random": preset}), None, {}).algorithms["random"]


def test_layers_are_joined_and_later_ones_win(tmp_path: Path) -> None:
    path = file(tmp_path, {"random": {"router_threshold": 0.1}, "entropy": {}, "single": {}})
    variables = {"TOKENROUTER_ALGORITHMS": "{random: {router_threshold: 0.2}, entropy: null}"}
    flags = gather({"algorithms": json.dumps({"random": {"router_threshold": 0.3}})})
    config = load(path, flags, variables)
    assert {name: each.router_threshold for name, each in config.algorithms.items()} == {
        "random": 0.3,
        "entropy": None,
        "single": None,
    }


def test_another_algorithm_of_the_deployment_keeps_the_further_ones(tmp_path: Path) -> None:
    path = file(tmp_path, {"random": {"router_threshold": 0.1}})
    config = load(path, gather({"algorithm": "entropy"}), {})
    assert config.algorithms["random"].router_threshold == 0.1


@pytest.mark.parametrize(
    ("algorithms", "said"),
    [
        ({"x": {}}, "algorithms.x.algorithm: unknown algorithm 'x'"),
        ({"random": {"router_threshold": 2}}, "algorithms.random.router_threshold: random takes"),
        ({"random": {"algorithm_args": {"p": 1}}}, "algorithms.random.algorithm_args: random does"),
        ({"x": {"algorithm": "no.such:Mine"}}, "algorithms.x.algorithm: cannot load 'no.such:Mi"),
        (
            {"x": {"router_treshold": 1}},
            "algorithms.x.router_treshold: unknown field; did you mean 'router_threshold'?",
        ),
        (
            {"random": {"algorithm": "entropy"}},
            "algorithms.random: would hide the built-in algorithm 'random' behind 'entropy'; give "
            "it another name, or leave out its algorithm",
        ),
        ({"x": 5}, "algorithms.x: input should be"),
        ({"a:b": {"algorithm": "random"}}, "'a:b' cannot be a name"),
        ([], "algorithms: input should be"),
    ],
)
def test_a_wrong_one_is_named_with_its_field(tmp_path: Path, algorithms: Any, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(file(tmp_path, algorithms), None, {})
    assert said in str(error.value)


class Unsure(Single):
    def signals(self, member: int) -> Any:
        return Entropy() if member else []


def test_signals_that_are_none_are_told_of_any_algorithm(tmp_path: Path) -> None:
    name = f"{__name__}:Unsure"
    said = re.escape(f"algorithm: {name}: signals(1) failed: TypeError: ")
    with pytest.raises(ConfigError, match=rf"^{said}.* return a list .*\(from --algorithm\)$"):
        load(file(tmp_path, {}), gather({"algorithm": name}), {})
    with pytest.raises(ConfigError, match=rf"^algorithms\.mine\.{said}"):
        load(file(tmp_path, {"mine": {"algorithm": name}}), None, {})


class Asynchronous(Single):
    async def route(self, request: Any, step: Any) -> Any:
        return None


def test_a_hook_that_cannot_be_called_is_told_of_any_algorithm(tmp_path: Path) -> None:
    name = f"{__name__}:Asynchronous"
    with pytest.raises(ConfigError, match=r"Asynchronous: route must not be async"):
        load(file(tmp_path, {}), gather({"algorithm": name}), {})


def test_a_problem_is_traced_to_where_it_was_written(tmp_path: Path) -> None:
    path = file(tmp_path, {"random": {"router_threshold": 2}, "single": {"router_threshold": 0.5}})
    line = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if "random:" in text)
    with pytest.raises(ConfigError, match=rf"got 2.0 \(from {path}:{line}\)"):
        load(path, None, {})
    with pytest.raises(ConfigError, match=r"got 3.0 \(from TOKENROUTER_ALGORITHMS\)"):
        load(path, None, {"TOKENROUTER_ALGORITHMS": "random: {router_threshold: 3}"})
    with pytest.raises(ConfigError, match=r"got 4.0 \(from --algorithms\)"):
        load(path, gather({"algorithms": '{"random": {"router_threshold": 4}}'}), {})
    with pytest.raises(ConfigError, match="--algorithms: not JSON"):
        gather({"algorithms": "random"})


def test_the_example_of_the_manual_is_a_valid_one(tmp_path: Path) -> None:
    manual = (Path(__file__).parents[2] / "README.md").read_text()
    [example] = re.findall(
        r"```yaml\n(served_name: demo\n[^`]*\nalgorithms: .*?)```", manual, re.DOTALL
    )
    folder = tmp_path / "model"
    model_folder(folder)
    path = tmp_path / "routes.yaml"
    path.write_text(re.sub(r"/models/[^}]+", str(folder), example))
    config = load(path, None, {})
    assert [*config.algorithms] == ["careful", "random"]
    assert config.algorithms["careful"].router_threshold == 0.1


def test_what_is_dumped_can_be_loaded_again(tmp_path: Path) -> None:
    path = file(tmp_path, {"random": {"router_threshold": 0.1}})
    reading = read(path, gather({"algorithms": '{"entropy": {"router_threshold": 1e999}}'}), {})
    (tmp_path / "again.yaml").write_text(dump(served(reading), reading))
    assert load(tmp_path / "again.yaml", None, {}) == reading.config
