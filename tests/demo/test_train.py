"""Training: it learns, and an interrupted run ends where an unbroken one does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from tokenrouter.demo.batches import training_batches
from tokenrouter.demo.recipes import RECIPES, ModelName, Recipe, build_model
from tokenrouter.demo.train import Budget, Training, learning_rate, main

TINY = Recipe(16, 16, layers=1, heads=2, batch_size=4, steps=4)

pytestmark = pytest.mark.skipif(
    not hasattr(torch.optim, "Muon"), reason="training needs the Muon optimizer of torch 2.9"
)


def trained(training: Training, steps: int) -> list[float]:
    batches = training_batches(0, TINY.batch_size, training.step)
    return [training.update(next(batches), 1.0) for _ in range(steps)]


def test_the_loss_falls() -> None:
    losses = trained(Training(build_model(TINY, 0)), 30)
    assert losses[-1] < losses[0] - 1


def test_a_resumed_training_equals_an_unbroken_one(tmp_path: Path) -> None:
    unbroken = Training(build_model(TINY, 0))
    trained(unbroken, 6)
    first = Training(build_model(TINY, 0))
    trained(first, 3)
    first.save(tmp_path / "checkpoint.pt")
    second = Training(build_model(TINY, 1))
    second.load(tmp_path / "checkpoint.pt")
    trained(second, 3)
    assert second.step == unbroken.step
    for name, weight in unbroken.model.state_dict().items():
        assert torch.equal(weight, second.model.state_dict()[name]), name


def test_the_learning_rate_warms_up_stays_and_decays_to_zero() -> None:
    rates = [learning_rate(step, step / 1000) for step in range(1001)]
    assert rates[0] < 0.05
    assert rates[200] == rates[300] == 1.0
    assert rates[300] > rates[700] > rates[900] > rates[1000] == 0.0


def test_a_budget_counts_steps_or_seconds() -> None:
    assert Budget(steps=10, seconds=None).progress(5, 1e9) == 0.5
    assert Budget(steps=10, seconds=60).progress(10**9, 30) == 0.5


def test_the_command_writes_a_model_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECIPES, ModelName.SMALL, TINY)
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, ["--model", "small", "--out", str(tmp_path), "--steps", "2"])
    assert result.exit_code == 0, result.output
    assert "2 steps" in result.output
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
