"""How `tokenrouter calibrate` tells what it found: to people in tables, or to programs in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from tokenrouter.calibration.facts import Facts
from tokenrouter.calibration.findings import Findings
from tokenrouter.calibration.result import Advice, Result, Shares
from tokenrouter.throughput_model.parameters import LEAST_GAIN

FILE_WIDTH = 100
"""Columns of a table that is no terminal's."""
KINDS = {
    "measured": "measured",
    "interpolated": "interpolated between the two nearest below: try it",
    "jump": "the share jumps here; nothing comes nearer",
    "beyond": "out of reach; this is the nearest",
}


def as_json(result: Result) -> str:
    """Everything, for programs."""
    facts, shares = result.facts, result.shares
    content: dict[str, Any] = {
        "served_name": facts.name,
        "algorithm": facts.algorithm,
        "router_threshold": _threshold(result),
        "prompts": result.prompts,
        "models": [asdict(model) for model in result.findings.models] if result.findings else None,
        "concurrency": [_advice(each) for each in result.advice],
        "shares": None if shares is None else [asdict(each) for each in shares.answers],
        "tried": None if shares is None else [asdict(each) for each in shares.points],
        "wrote": None if result.wrote is None else str(result.wrote),
    }
    return json.dumps(content, indent=2)


def show(result: Result) -> None:
    """Print everything, for people."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = FILE_WIDTH
    threshold = _threshold(result)
    at = "" if threshold is None else f" at {threshold:g}"
    console.print(f"{result.facts.name}: {result.facts.algorithm}{at}, {result.prompts} prompts")
    if result.shares is not None:
        _show_shares(console, result.facts, result.shares)
    if result.findings is not None:
        _show_latencies(console, result.findings)
        _show_routing(console, result.findings)
        _show_advice(console, result)


def _threshold(result: Result) -> float | None:
    return result.facts.router_threshold if result.threshold is None else result.threshold


def _advice(advice: Advice) -> dict[str, Any]:
    window, best, choice = advice.window, advice.outlook.best, advice.choice
    return {
        "concurrency": window.concurrency,
        "tokens_per_s": window.tokens_per_s,
        "stderr": window.stderr,
        "live": window.live,
        "thresholds": window.thresholds,
        "predicted_tokens_per_s": advice.predicted,
        "best": {
            "thresholds": best.thresholds,
            "tokens_per_s": best.tokens_per_s,
            "stderr": best.prediction.stderr,
            "method": best.prediction.method,
            "gain_over_ones": best.over_ones,
        },
        "recommended": {
            "thresholds": choice.thresholds,
            "tokens_per_s": choice.tokens_per_s,
            "gain_over_ones": choice.gain,
        },
    }


def _table(title: str, *columns: str, left: int = 1) -> Table:
    """With numbers aligned to the right, but for the first ``left`` columns."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right")
    return table


def _show_shares(console: Console, facts: Facts, shares: Shares) -> None:
    table = _table(
        "share of tokens not written by " + facts.members[0], "router threshold", "share"
    )
    for point in shares.points:
        table.add_row(f"{point.threshold:g}", f"{point.share:.2%} ± {point.stderr:.2%}")
    console.print(table)
    for answer in shares.answers:
        console.print(
            f"for {answer.wanted:.3g}: router_threshold: {answer.threshold:g} gives "
            f"{answer.share:.2%} ± {answer.stderr:.2%} ({KINDS[answer.kind]})"
        )


def _show_latencies(console: Console, findings: Findings) -> None:
    table = _table(
        "step latency", "model", "batch", "steps", "measured ms", "model ms", "tokens/request"
    )
    for model in findings.models:
        for batch in model.batches:
            table.add_row(
                model.name,
                str(batch.size),
                str(batch.steps),
                f"{batch.ms:.2f} ± {batch.stderr_ms:.2f}",
                f"{batch.model_ms:.2f}",
                f"{batch.tokens:.2f}",
            )
        table.add_section()
    console.print(table)
    console.print("The model's times hold those for prompts, spread over the steps.")


def _show_routing(console: Console, findings: Findings) -> None:
    table = _table(
        "routing after a step", "on", "to", "share", "tokens kept", "steps in a row", left=2
    )
    for model in findings.models:
        for hop in model.hops:
            stays = hop.to == model.name
            table.add_row(
                model.name,
                hop.to,
                f"{hop.share:.3f} ± {hop.stderr:.3f}",
                f"{hop.committed:.2f}",
                "" if stays else f"{model.mean_run:.2f}",
            )
        table.add_section()
    console.print(table)
    if odd := [model.name for model in findings.models if not model.geometric]:
        console.print(
            f"Steps in a row on {', '.join(odd)} are not geometric: predictions simulate the "
            "numbers that were seen."
        )


def _show_advice(console: Console, result: Result) -> None:
    table = _table(
        "throughput", "requests", "thresholds", "measured tokens/s", "model says",
        "recommended", "model says", "gain over 1s",
    )  # fmt: skip
    for advice in result.advice:
        window, choice = advice.window, advice.choice
        error = "" if window.stderr is None else f" ± {window.stderr:.1f}"
        table.add_row(
            str(window.concurrency),
            "various" if window.thresholds is None else _vector(window.thresholds),
            f"{window.tokens_per_s:.1f}{error}",
            "" if advice.predicted is None else f"{advice.predicted:.1f}",
            _vector(choice.thresholds),
            f"{choice.tokens_per_s:.1f}",
            f"{choice.gain:.1%}",
        )
    console.print(table)
    for line in _remarks(result.advice):
        console.print(line)
    last = result.advice[-1]
    pairs = zip(result.facts.members, last.choice.thresholds, strict=True)
    flags = " ".join(f"{name}={threshold}" for name, threshold in pairs)
    console.print(
        f"To set those for {last.window.concurrency} requests: tokenrouter serve ... --threshold "
        f"{flags}, or threshold: in each entry of models; threshold: auto finds them while serving."
    )
    if result.wrote is not None:
        console.print(f"Parameters: {result.wrote}; tokenrouter plan {result.wrote} tells more.")


def _remarks(told: Sequence[Advice]) -> Iterator[str]:
    """What the table of throughputs leaves open."""
    if any(advice.window.thresholds is None for advice in told):
        yield (
            "various: thresholds changed meanwhile (threshold: auto does that), so the model says "
            "nothing."
        )
    if any(advice.window.thresholds and advice.predicted is None for advice in told):
        yield "No number of the model: the thresholds in force are not among those it looked at."
    if few := [str(advice.window.concurrency) for advice in told if not advice.choice.gain]:
        yield (
            f"At {', '.join(few)} requests nothing gains {LEAST_GAIN:.0%} over thresholds of 1: "
            "these are recommended."
        )


def _vector(thresholds: Sequence[int]) -> str:
    return ",".join(map(str, thresholds))
