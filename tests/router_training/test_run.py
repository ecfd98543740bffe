"""Whole runs: what they write, and that a kill anywhere changes nothing of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.router_training.builders import RECIPE, wanted
from tokenrouter.cli_progress import progress_bars
from tokenrouter.errors import ConfigError
from tokenrouter.router_training.report import Report, as_json
from tokenrouter.router_training.run import train
from tokenrouter.router_training.store import Store
from tokenrouter.routers import checkpoint

Finished = tuple[Path, Report]
KILLS = [
    ("answers/00002.safetensors", 1),
    ("features/00001.safetensors", 1),
    ("probabilities/00000.safetensors", 1),
    ("fitting.pt", 3),
    ("router.safetensors", 1),
]
"""In each stage: the file during whose writing, the how-manieth of its name, the program dies."""
WRITTEN = 1 + 3 * 3 + RECIPE.epochs + 4
"""Files: a manifest, three stages of three shards, one per epoch, and four at the end."""


class Killed(BaseException):
    """Ends a program as a kill does: nothing is cleaned up."""


def run(small: Path, out: Path, **changes: Any) -> Report:
    """A run as `wanted`, without bars."""
    with progress_bars(shown=False) as bars:
        return train(wanted(small, out, **changes), bars)


def killed_at(monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> list[str]:
    """Kill the program when it has half written a file for the ``times``-th time; lists writes."""
    write, written = Store.write, []

    def fatal(store: Store, now: str, how: Callable[[Path], object]) -> None:
        def half(path: Path) -> None:
            how(path)
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            raise Killed

        written.append(now)
        write(store, now, half if now == name and written.count(now) == times else how)

    monkeypatch.setattr(Store, "write", fatal)
    return written


def same(one: Path, other: Path) -> bool:
    """Whether two runs wrote the same router."""
    first, second = (load_file(folder / "router.safetensors") for folder in (one, other))
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


def test_kills_while_writing_change_nothing(
    monkeypatch: pytest.MonkeyPatch, noisy: Path, finished: Finished, tmp_path: Path
) -> None:
    """One run, killed in each of its stages and taken up again."""
    done = 0
    for begins, (name, times) in zip([None, *KILLS], [*KILLS, ("nothing", 1)], strict=True):
        written = killed_at(monkeypatch, name, times)
        if name == "nothing":
            report = run(noisy, tmp_path)
        else:
            with pytest.raises(Killed):
                run(noisy, tmp_path)
        monkeypatch.undo()
        if begins is not None:
            assert written[0] == begins[0], "it goes on with the file that was lost"
        done += len(written) - (name != "nothing")
    assert done == WRITTEN, "and does nothing again"
    assert same(tmp_path, finished[0])
    assert report.test == finished[1].test and report.history == finished[1].history


def test_both_formats_hold_the_same_router(finished: Finished) -> None:
    out, report = finished
    own, official = (checkpoint.load(out / f"router.{kind}") for kind in ("safetensors", "pt"))
    assert own.threshold == official.threshold == pytest.approx(report.threshold)
    assert own.small_model == official.small_model == "noisy"
    assert own.architecture == official.architecture
    rows = torch.randn(7, 64), torch.randn(7, 64), torch.randn(7, 100)
    assert torch.equal(own.network.probability(*rows), official.network.probability(*rows))
    assert json.loads((out / "report.json").read_text()) == json.loads(as_json(report))


def test_it_learns(finished: Finished) -> None:
    report = finished[1]
    assert report.auc > 0.75 and report.history[-1]["training"] < report.history[0]["training"]
    assert report.validation.recall >= 0.95


def test_other_inputs_need_another_folder(noisy: Path, finished: Finished, tmp_path: Path) -> None:
    given = wanted(noisy, tmp_path)
    shutil.copytree(finished[0], tmp_path / "copy")
    with pytest.raises(ConfigError, match="of a run with other --max-tokens; give"):
        run(noisy, tmp_path / "copy", max_tokens=33)
    with pytest.raises(ConfigError, match="of a run with other small model, prompts; give"):
        run(given.large, tmp_path / "copy", prompts=given.prompts[:10])


def test_other_labels_and_networks_are_trained_from_what_is_there(
    monkeypatch: pytest.MonkeyPatch, noisy: Path, finished: Finished, tmp_path: Path
) -> None:
    shutil.copytree(finished[0], tmp_path / "copy")
    written = killed_at(monkeypatch, "nothing", 1)
    report = run(noisy, tmp_path / "copy", epsilon=0.01)
    assert report.divergent < finished[1].divergent
    assert written.count("fitting.pt") == RECIPE.epochs and len(written) == RECIPE.epochs + 4
    assert not same(tmp_path / "copy", finished[0])


def test_a_share_sets_the_threshold(noisy: Path, finished: Finished, tmp_path: Path) -> None:
    shutil.copytree(finished[0], tmp_path / "copy")
    report = run(noisy, tmp_path / "copy", share=0.1)
    assert 0 < report.validation.share <= 0.1
    assert checkpoint.load(tmp_path / "copy" / "router.pt").threshold == report.threshold
