"""What a trained router is worth: as JSON, and as tables for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from rich.console import Console
from rich.table import Table

from tokenrouter.router_training import choosing
from tokenrouter.router_training.choosing import Bin, Quality
from tokenrouter.router_training.fitting import Fit, positive_weight
from tokenrouter.router_training.labels import Examples, Splits

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Of tokens that the large model writes: what the router finds at each is reported."""
FILE_WIDTH = 100


@dataclass(frozen=True)
class AtShare:
    """Of divergent tokens, the shares found at a share of large tokens, by router and entropy."""

    share: float
    threshold: float
    recall: float
    recall_of_entropy: float


@dataclass(frozen=True)
class Report:
    """Results on prompts that nothing was learned from or chosen on, unless a name says else.

    ``auc``: the probability that a divergent token's score is above another's.
    """

    prompts: int
    positions: int
    divergent: int
    learned_from: int
    epochs: int
    best_epoch: int
    threshold: float
    validation: Quality
    test: Quality
    auc: float
    auc_of_entropy: float
    shares: tuple[AtShare, ...]
    calibration: tuple[Bin, ...]
    history: tuple[dict[str, float], ...]
    files: tuple[str, ...] = ()


def assess(fit: Fit, splits: Splits, prompts: int, recall: float, share: float | None) -> Report:
    """Choose the threshold on the validation split, for a share if given, and test it."""
    chosen_on, tested = fit.scores(splits.validation), fit.scores(splits.test)
    if share is None:
        threshold = choosing.for_recall(chosen_on, splits.validation.label, recall)
    else:
        threshold = choosing.for_share(chosen_on, share)
    labels, unsure = splits.test.label, entropy(splits.test)
    probabilities = choosing.unweighted(tested, positive_weight(splits.training))
    return Report(
        prompts=prompts,
        positions=len(splits.test),
        divergent=splits.test.positives,
        learned_from=len(splits.training),
        epochs=len(fit.history),
        best_epoch=fit.best_epoch,
        threshold=threshold,
        validation=choosing.quality(chosen_on, splits.validation.label, threshold),
        test=choosing.quality(tested, labels, threshold),
        auc=choosing.ranking(tested, labels),
        auc_of_entropy=choosing.ranking(unsure, labels),
        shares=tuple(_at(each, tested, unsure, labels) for each in SHARES),
        calibration=tuple(choosing.calibration(probabilities, labels)),
        history=tuple(asdict(each) for each in fit.history),
    )


def _at(share: float, scores: torch.Tensor, unsure: torch.Tensor, labels: torch.Tensor) -> AtShare:
    threshold = choosing.for_share(scores, share)
    of_entropy = choosing.for_share(unsure, share)
    return AtShare(
        share,
        threshold,
        choosing.quality(scores, labels, threshold).recall,
        choosing.quality(unsure, labels, of_entropy).recall,
    )


def entropy(examples: Examples) -> torch.Tensor:
    """The small model's over its largest logits, in nats, [n]: the router to beat."""
    logs = examples.logits.float().log_softmax(-1)
    return -(logs.exp() * logs).sum(-1)


def as_json(report: Report) -> str:
    """Everything, for programs."""
    return json.dumps(asdict(report), indent=2)


def show(report: Report, console: Console | None = None) -> None:
    """Print the report, for people."""
    console = console or Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = FILE_WIDTH
    console.print(
        f"learned from {report.learned_from} positions of {report.prompts} prompts; best epoch "
        f"{report.best_epoch} of {report.epochs}"
    )
    console.print(
        f"threshold {report.threshold:.4g}; on {report.positions} positions not seen before, "
        f"{report.divergent} of them divergent:"
    )
    console.print(_rows(("", "large tokens", "recall", "precision"), _qualities(report)))
    console.print(f"AUC {report.auc:.4f}; of entropy {report.auc_of_entropy:.4f}")
    shares = (
        (f"{each.share:.0%}", f"{each.threshold:.4g}", *_percents(each)) for each in report.shares
    )
    names = ("large tokens", "threshold", "recall", "recall of entropy")
    console.print(_rows(names, list(shares)))
    for path in report.files:
        console.print(f"wrote {path}")


def _qualities(report: Report) -> list[tuple[str, ...]]:
    return [
        (name, f"{found.share:.2%}", f"{found.recall:.1%}", f"{found.precision:.1%}")
        for name, found in (("validation", report.validation), ("test", report.test))
    ]


def _percents(found: AtShare) -> tuple[str, str]:
    return f"{found.recall:.1%}", f"{found.recall_of_entropy:.1%}"


def _rows(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    return table
