"""Files of trained networks in a configuration: paths, and what `check` says of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.configuration.folders import VOCABULARY, model_folder
from tests.routers.heads import head_state
from tests.routers.official import checkpoint, write
from tokenrouter.config import Config, load, read
from tokenrouter.configuration.examine import GIB, examine
from tokenrouter.configuration.machine import Machine
from tokenrouter.configuration.vocabulary import check
from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.signals import CiterConfidence, DeferralProbability, RouterScore

SIZES = {
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "hidden_size": 12,
    "vocab_size": 32,
}


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A configuration file beside two models and the files of networks."""
    for name in ("small", "large"):
        model_folder(tmp_path / name, **SIZES)
    write(tmp_path / "router.pt", checkpoint())
    torch.save(head_state(12), tmp_path / "head.pt")
    path = tmp_path / "pair.yaml"
    path.write_text(
        "port: 0\n"
        "algorithm: r2r\n"
        "algorithm_args: {router: router.pt}\n"
        "algorithms: {citer: {algorithm_args: {head: head.pt}}, co_llm: }\n"
        "models:\n"
        "  - {name: small, model_path: small}\n"
        "  - {name: large, model_path: large}\n"
    )
    return path


def problems(path: Path) -> list[str]:
    return examine(load(path, environment={}), Machine(ram=64 * GIB)).problems


def test_paths_are_relative_to_the_file_and_members_know_what_to_load(pair: Path) -> None:
    config = load(pair, environment={})
    assert config.declared(0) == [
        RouterScore(str(pair.parent / "router.pt")),
        CiterConfidence(str(pair.parent / "head.pt")),
        DeferralProbability(),
    ]
    assert config.declared(1) == []
    assert problems(pair) == []


def test_the_router_of_the_embedded_pair(tmp_path: Path) -> None:
    models = {name: {"model_path": f"demo:{name}"} for name in ("small", "large")}
    args = {"router": "demo:router.safetensors"}
    config = load(
        None, {"algorithm": "r2r", "algorithm_args": args, "port": 0, "models": models}, {}
    )
    assert examine(config, Machine(ram=64 * GIB)).problems == []
    [signal] = config.declared(0)
    assert isinstance(signal, RouterScore) and Path(signal.path).parent.name == "models"


def test_paths_of_an_algorithm_within_another(pair: Path) -> None:
    path = pair.parent / "query.yaml"
    then = "{algorithm: r2r, algorithm_args: {router: router.pt}}"
    text = pair.read_text().replace("{router: router.pt}", f"{{then: {then}}}")
    path.write_text(text.replace("algorithm: r2r\n", "algorithm: query\n"))
    assert RouterScore(str(pair.parent / "router.pt")) in load(path, environment={}).declared(0)


def test_a_file_that_is_not_there(pair: Path) -> None:
    (pair.parent / "router.pt").unlink()
    (pair.parent / "head.pt").unlink()
    told = read(pair, environment={}).problems
    assert [problem for problem in told if "algorithm_args.router: " in problem]
    assert [problem for problem in told if "algorithms.citer.algorithm_args.head: " in problem]


def test_networks_of_other_models_are_told_before_anything_starts(pair: Path) -> None:
    write(pair.parent / "router.pt", checkpoint(hidden=64))
    torch.save(head_state(64), pair.parent / "head.pt")
    first, second = problems(pair)
    assert first.startswith("algorithm_args.router: the router is for a small model of hidden size")
    assert second.startswith("algorithm_args.head: the head is for a small model of hidden size 64")


def test_a_file_that_is_none_of_a_router(pair: Path) -> None:
    (pair.parent / "router.pt").write_text("a poem")
    [problem] = problems(pair)
    assert "is not a file of torch.save" in problem


def test_the_tokenizer_of_a_deferring_model_may_name_its_last_row(tmp_path: Path) -> None:
    more: dict[str, Any] = {**VOCABULARY, "<|defer|>": 3}
    small = model_folder(tmp_path / "small", more, vocab_size=4)
    large = model_folder(tmp_path / "large", vocab_size=3)
    entries = [{"name": "small", "model_path": small}, {"name": "large", "model_path": large}]
    models = Config.model_validate({"models": entries}).models
    with pytest.raises(ConfigError, match="is only in small"):
        check(models)
    check(models, ["small"])
    settings = {
        "port": 0,
        "models": {each["name"]: {"model_path": each["model_path"]} for each in entries},
    }
    load(None, {**settings, "algorithm": "co_llm"}, {})
    with pytest.raises(ConfigError, match="is only in small"):
        load(None, {**settings, "algorithm": "entropy"}, {})


def test_a_model_whose_last_row_is_a_token_has_not_learned_to_defer(tmp_path: Path) -> None:
    for name in ("small", "large"):
        model_folder(tmp_path / name, vocab_size=3)
    models = {name: {"model_path": tmp_path / name} for name in ("small", "large")}
    settings = {"port": 0, "models": models, "algorithm": "co_llm"}
    with pytest.raises(ConfigError) as caught:
        load(None, settings, {})
    [problem] = caught.value.problems
    assert problem.startswith(
        "models.small.model_path: the last row (id 2) is taken for deferring (co_llm), and is the "
        "token 'c' of large: was it trained for Co-LLM?"
    )


@pytest.mark.parametrize(("rows", "doubted"), [(32, True), (31, False), (33, False)])
def test_a_model_with_as_many_rows_as_the_other_may_not_have_learned_to_defer(
    pair: Path, rows: int, doubted: bool
) -> None:
    shutil.rmtree(pair.parent / "large")
    model_folder(pair.parent / "large", **{**SIZES, "vocab_size": rows})
    told = "models.small: its last row (id 31) is taken for deferring (co_llm), and large has as"
    warnings = [each for each in read(pair, environment={}).warnings if each.startswith(told)]
    assert bool(warnings) == doubted
