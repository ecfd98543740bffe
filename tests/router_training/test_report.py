"""The numbers of a report, from scores set by hand, and how people and programs read them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from tokenrouter.router_training import plot, report
from tokenrouter.router_training.fitting import Losses
from tokenrouter.router_training.labels import Examples, Splits


class Scored:
    """A fit whose scores are the first hidden feature."""

    history = (Losses(0.5, 0.4), Losses(0.3, 0.2))
    best_epoch = 2

    def scores(self, examples: Examples) -> torch.Tensor:
        return examples.hidden[:, 0]


def examples(scores: list[float], labels: list[int], unsure: list[float]) -> Examples:
    """Positions with these scores; logits (0, -x) have the more entropy the smaller x is."""
    logits = torch.tensor([[0.0, -1 / value] for value in unsure])
    hidden = torch.tensor(scores)[:, None]
    label = torch.tensor(labels, dtype=torch.bool)
    return Examples(torch.zeros(len(scores)), logits, hidden, label)


@pytest.fixture
def found() -> report.Report:
    validation = examples([0.9, 0.6, 0.5, 0.1], [1, 1, 0, 0], [1.0] * 4)
    test = examples(
        [0.95, 0.7, 0.65, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01],
        [1, 0, 1, 0, 1, 0, 0, 0, 0, 0],
        [0.1, 0.9, 0.8, 0.2, 0.7, 0.1, 0.1, 0.1, 0.1, 0.1],
    )
    training = examples([0.5] * 10, [1] + [0] * 9, [1.0] * 10)
    return report.assess(Scored(), Splits(training, validation, test), 20, 0.95, None)


def test_by_hand(found: report.Report) -> None:
    assert found.threshold == pytest.approx(0.6)
    assert (found.validation.recall, found.validation.precision) == (1.0, 1.0)
    assert (found.test.share, found.test.recall) == (0.3, pytest.approx(2 / 3))
    assert found.test.precision == pytest.approx(2 / 3)
    assert found.auc == pytest.approx((7 + 6 + 5) / 21)
    at = {each.share: each for each in found.shares}
    assert (at[0.1].recall, at[0.1].recall_of_entropy) == (pytest.approx(1 / 3), 0.0)
    assert at[0.2].recall_of_entropy == pytest.approx(1 / 3)
    assert (found.positions, found.divergent, found.learned_from) == (10, 3, 10)


def test_for_programs(found: report.Report) -> None:
    content = json.loads(report.as_json(found))
    assert content["test"]["share"] == 0.3 and content["history"][1]["validation"] == 0.2
    assert sum(each["count"] for each in content["calibration"]) == 10


def test_for_people(found: report.Report) -> None:
    said = io.StringIO()
    report.show(found, Console(file=said, soft_wrap=True))
    text = said.getvalue()
    assert "best epoch 2 of 2" in text and "threshold 0.6" in text
    assert ["test", "30.00%", "66.7%", "66.7%"] in [line.split() for line in text.splitlines()]


def test_the_picture(found: report.Report, tmp_path: Path) -> None:
    plot.save(tmp_path / "anything", found)
    assert (tmp_path / "anything").read_bytes().startswith(b"\x89PNG")
    left, right = plot.draw(found).axes
    assert list(left.lines[1].get_ydata()) == [each.observed for each in found.calibration]
    assert list(right.lines[0].get_ydata()) == [100 * each.recall for each in found.shares]
