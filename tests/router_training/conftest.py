"""A pair that differs a lot and computes fast: the demo's small model, and a noisy copy of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.router_training.builders import FIRST, wanted
from tokenrouter.cli_progress import progress_bars
from tokenrouter.demo.recipes import MODELS_FOLDER, save_model
from tokenrouter.router_training.report import Report
from tokenrouter.router_training.run import train


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """The models are so small that more threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="package")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the demo's small model with noise on its weights."""
    folder = tmp_path_factory.mktemp("noisy")
    model = AutoModelForCausalLM.from_pretrained(MODELS_FOLDER / "small")
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * weight.std() * torch.randn_like(weight) if weight.ndim == 2 else 0.0
    save_model(model, folder)
    return folder


@pytest.fixture(scope="package")
def finished(noisy: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    """The folder of a run that nothing interrupted, and its report."""
    out = tmp_path_factory.mktemp(FIRST)
    with progress_bars(shown=False) as bars:
        return out, train(wanted(noisy, out), bars)
