"""Routers in R2R's official layout and in ours, against plain functions."""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from tests.routers.official import COMBINED, INPUTS, checkpoint, probability, write
from tokenrouter.errors import ConfigError
from tokenrouter.routers.checkpoint import (
    Router,
    check_small_model,
    load,
    save,
    save_official,
)
from tokenrouter.routers.r2r import Architecture, RouterNetwork

CASES = [
    *(checkpoint(name, normalize=normalize) for name in COMBINED for normalize in (False, True)),
    checkpoint("HiddenStatesClassifier", normalize=True),
    checkpoint("LogitsClassifier", widths=(8, 20, 12), expansion=2),
    checkpoint("HiddenStatesClassifier", classes=3),
    checkpoint("LogitsClassifier", classes=3, normalize=True),
    checkpoint("MultiClassHiddenStatesClassifier", classes=3, softmax=True, normalize=True),
    checkpoint("MultiClassLogitsClassifier", classes=3, softmax=False, widths=(8, 20)),
]


def features(rows: int = 7, hidden: int = 12, logits: int = 10) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    top = torch.randn(rows, logits, generator=generator).sort(dim=-1, descending=True).values
    states = torch.randn(2, rows, hidden, generator=generator)
    return states[0] * 3, states[1], top * 4


@pytest.mark.parametrize("content", CASES, ids=lambda c: c["model_type"])
def test_the_network_computes_what_the_definition_says(
    content: dict[str, Any], tmp_path: Path
) -> None:
    router = load(write(tmp_path / "router.pt", content))
    expected = probability(content, *features())
    assert float(expected.max() - expected.min()) > 1e-3
    torch.testing.assert_close(
        router.network.probability(*features()).double(), expected, atol=1e-6, rtol=0
    )
    assert router.threshold == 0.406
    assert list(router.input_type) == INPUTS[content["model_type"]]


@pytest.mark.parametrize("content", CASES, ids=lambda c: c["model_type"])
def test_both_formats_give_back_what_was_saved(content: dict[str, Any], tmp_path: Path) -> None:
    router = load(write(tmp_path / "router.pt", content))
    expected = router.network.probability(*features())
    save(tmp_path / "folder", router)
    save(tmp_path / "file.safetensors", router)
    save_official(tmp_path / "again.pt", router)
    for name in ("folder", "file.safetensors", "again.pt"):
        again = load(tmp_path / name)
        assert again.architecture == router.architecture
        assert (again.threshold, again.small_model) == (0.406, router.small_model)
        torch.testing.assert_close(
            again.network.state_dict(), router.network.state_dict(), atol=0, rtol=0
        )
        torch.testing.assert_close(again.network.probability(*features()), expected)
    modes = {path.stat().st_mode for path in tmp_path.rglob("*.*") if path.is_file()}
    assert len(modes) == 1, "whoever may read one format may read the other"
    saved = torch.load(tmp_path / "again.pt", weights_only=True)
    # The hidden size that the official file claims is not the one of its tensors.
    expected_args = {**content["init_args"], "hidden_states_size": 12}
    assert all(expected_args[key] == value for key, value in saved["init_args"].items())
    assert expected_args.keys() - saved["init_args"].keys() <= {
        "max_position_embeddings",
        "hidden_states_size",
    }
    assert saved["state_dict"].keys() == content["state_dict"].keys()
    assert saved["common_args"] == content["common_args"]


def test_the_embedding_of_a_full_checkpoint_is_ignored(tmp_path: Path) -> None:
    content = checkpoint()
    expected = load(write(tmp_path / "bare.pt", content)).network.probability(*features())
    content["state_dict"]["token_embeddings.weight"] = torch.zeros(50, 12)
    full = load(write(tmp_path / "full.pt", content))
    torch.testing.assert_close(full.network.probability(*features()), expected)


def test_without_a_threshold_it_is_the_official_servers(tmp_path: Path) -> None:
    assert load(write(tmp_path / "router.pt", checkpoint(threshold=None))).threshold == 0.5


def test_a_row_does_not_depend_on_the_others(tmp_path: Path) -> None:
    router = load(write(tmp_path / "router.pt", checkpoint(widths=(256,) * 3)))
    inputs = features(rows=40)
    together = router.network.probability(*inputs)
    alone = torch.cat(
        [router.network.probability(*(x[i : i + 1] for x in inputs)) for i in range(40)]
    )
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=0)


def test_a_network_made_for_training_is_saved_and_loaded(tmp_path: Path) -> None:
    torch.manual_seed(3)
    shape = Architecture("HiddenStatesTokenLMHeadLogitsClassifier", 12, 10, (16, 16))
    network = RouterNetwork(shape).train()
    trained = network(*features())
    assert not torch.equal(trained, network(*features())), "dropout"
    trained.sum().backward()
    save(tmp_path / "router.safetensors", Router(network, 0.25, "tiny"))
    loaded = load(tmp_path / "router.safetensors")
    torch.testing.assert_close(
        loaded.network.probability(*features()), network.eval().probability(*features())
    )
    assert not any(each.requires_grad for each in loaded.network.parameters())
    with safe_open(tmp_path / "router.safetensors", "pt") as file:
        assert "tiny" in file.metadata()["tokenrouter_router"]


def test_the_published_size() -> None:
    """54.7 M trainable parameters on a small model of hidden size 1024."""
    with torch.device("meta"):
        network = RouterNetwork(Architecture("HiddenStatesTokenLMHeadLogitsClassifier", 1024))
    assert sum(each.numel() for each in network.parameters()) == 54_677_505


class Malicious:
    """Its pickle makes a file when it is loaded."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    trap = tmp_path / "executed"
    path = write(tmp_path / "router.pt", {**checkpoint(), "extra": Malicious(trap)})
    with pytest.raises(ConfigError, match=r"router: .* could run code .*; save its state_dict"):
        load(path)
    assert not trap.exists()
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Malicious(trap)))
    with pytest.raises(ConfigError, match=r"algorithm_args\.router"):
        load(tmp_path / "plain.pt")
    assert not trap.exists()


def without(*keys: str) -> dict[str, Any]:
    content = checkpoint()
    for key in keys:
        (content if key in content else content["state_dict"]).pop(key)
    return content


def changed(**arguments: Any) -> dict[str, Any]:
    content = checkpoint()
    content["init_args"] |= arguments
    return content


WRONG = {
    "it has no model_type, state_dict": without("model_type", "state_dict"),
    r"backbone\.output_layer\.1\.bias is missing": without("backbone.output_layer.1.bias"),
    "KeyError: 'logits_projection.weight'": without("logits_projection.weight"),
    "'Other' is not served; served are HiddenStates": {**checkpoint(), "model_type": "Other"},
    "use_position_embedding is not served": changed(use_position_embedding=True),
    r"combined_projection\.weight is \[16, 36\], not \[32, 36\]": changed(hidden_dims=[32, 16, 16]),
    "has no place in it": changed(hidden_dims=[16]),
    "describes no router": changed(hidden_dims=[]),
    r"'outputs': 2, .* describes no router": checkpoint("LogitsClassifier", classes=2),
    "its sizes are impossible": changed(expansion_factor=-1),
    "cannot convert float infinity": changed(hidden_dims=[float("inf")]),
    "int too large to convert": checkpoint(threshold=10**400),
    "has no attribute 'items'": {**checkpoint(), "state_dict": [1]},
    "has no attribute 'get'": {**checkpoint(), "init_args": [1]},
    r"'float' object has no attribute 'shape'": {
        **checkpoint(),
        "state_dict": {**checkpoint()["state_dict"], "combined_projection.weight": 1.0},
    },
    "its threshold, 7.0, is no probability": checkpoint(threshold=7.0),
    "it holds a list, not a dictionary": [1, 2],
}  # fmt: skip


@pytest.mark.parametrize("reason", WRONG)
def test_what_is_no_router_is_told(reason: str, tmp_path: Path) -> None:
    path = write(tmp_path / "router.pt", WRONG[reason])
    with pytest.raises(ConfigError, match=reason) as raised:
        load(path)
    assert str(raised.value).startswith("algorithm_args.router: ")
    assert str(path) in str(raised.value)


NO_NUMBERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sparse": torch.Tensor.to_sparse,
    "quantised": lambda each: torch.quantize_per_tensor(each, 0.1, 0, torch.qint8),
    "without memory": lambda each: each.to("meta"),
    "complex": lambda each: each.to(torch.complex64),
    "not a number": lambda each: each * float("nan"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", NO_NUMBERS)
def test_tensors_of_another_kind(kind: str, tmp_path: Path) -> None:
    content = checkpoint()
    name = "combined_projection.weight"
    content["state_dict"][name] = NO_NUMBERS[kind](content["state_dict"][name])
    with pytest.raises(ConfigError, match=rf"router: .*{name} holds no finite numbers"):
        load(write(tmp_path / "router.pt", content))


def test_a_file_with_changed_bytes(tmp_path: Path) -> None:
    """What torch asserts, and does not raise as an error of unpickling, is told as such."""
    path = write(tmp_path / "router.pt", checkpoint())
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            if name.endswith("data.pkl"):  # the tuples that say where tensors are become numbers
                content = re.sub(rb"(?s)t(?=(q.|r....)Q)", b"K\n", content)
            file.writestr(name, content)
    with pytest.raises(ConfigError, match=r"router: .*it is damaged: AssertionError"):
        load(path)


def test_files_of_something_else(tmp_path: Path) -> None:
    for name in ("router.pt", "router.safetensors"):
        with pytest.raises(ConfigError, match="No such file"):
            load(tmp_path / name)
        (tmp_path / name).write_bytes(b"a poem")
        with pytest.raises(ConfigError, match=r"router: .*; "):
            load(tmp_path / name)
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(ConfigError, match="no 'tokenrouter_router'"):
        load(tmp_path / "other.safetensors")
    save_file({"w": torch.zeros(2)}, tmp_path / "bad.safetensors", {"tokenrouter_router": "{}"})
    with pytest.raises(ConfigError, match="missing required field"):
        load(tmp_path / "bad.safetensors")


def test_the_small_model_must_be_the_routers(tmp_path: Path) -> None:
    router = load(write(tmp_path / "router.pt", checkpoint()))
    check_small_model(router, 12, 320)
    with pytest.raises(ConfigError, match=r"hidden size 12 \(it was trained on Qwen/Qwen3-0.6B\)"):
        check_small_model(router, 1024, 320)
    with pytest.raises(ConfigError, match=r"10 largest logits .* has 9 tokens"):
        check_small_model(router, 12, 9)
    check_small_model(load(write(tmp_path / "l.pt", checkpoint("LogitsClassifier"))), 1024, 320)
