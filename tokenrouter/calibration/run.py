"""One calibration from its prompts to its result: router threshold, measurement, thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress

from tokenrouter.calibration import share
from tokenrouter.calibration.bisection import Point
from tokenrouter.calibration.client import SOCKET_HOST, Deployment, connected
from tokenrouter.calibration.findings import Findings, find
from tokenrouter.calibration.measuring import measure
from tokenrouter.calibration.prompts import Prompt
from tokenrouter.calibration.result import Advice, Result, Shares
from tokenrouter.calibration.windows import Window
from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.planning import parameter_writing, planning


@dataclass(frozen=True)
class Wanted:
    """What to measure.

    Attributes:
        concurrency: requests at once; one measurement of ``seconds`` (0: none) each.
        share: wanted shares of tokens that the first model does not write.
        out: file for the parameters.
    """

    prompts: Sequence[Prompt]
    concurrency: tuple[int, ...]
    seconds: float
    share: tuple[float, ...]
    max_tokens: int
    out: Path | None


async def calibrated(
    wanted: Wanted,
    bars: Progress,
    *,
    url: str = SOCKET_HOST,
    api_key: str | None = None,
    socket: str | None = None,
) -> Result:
    """What is found of the deployment at ``url``, or behind a UNIX ``socket``.

    Raises:
        ConfigError: it cannot be calibrated, or the file not be written.
        MeasurementError: it could not be measured.
    """
    findings, advice, shares, threshold = None, [], None, None
    async with connected(url, api_key, socket=socket) as deployment:
        if wanted.share:
            shares = await _shares(deployment, wanted, bars)
            if len(shares.answers) == 1:
                threshold = shares.answers[0].threshold
        windows = await _measured(deployment, wanted, threshold, bars) if wanted.seconds else []
        facts = deployment.facts
    if windows:
        findings = find(facts, windows)
        advice = _advice(findings, windows, bars)
        if wanted.out is not None:
            _write(wanted.out, findings, facts.name)
    return Result(
        facts,
        len(wanted.prompts),
        threshold,
        findings,
        advice,
        shares,
        wanted.out if windows else None,
    )


async def _shares(deployment: Deployment, wanted: Wanted, bars: Progress) -> Shares:
    task = bars.add_task("router threshold", total=None)
    answers, points = await share.calibrate(
        deployment,
        wanted.prompts,
        wanted.share,
        wanted.max_tokens,
        max(wanted.concurrency),
        lambda: bars.advance(task),
        lambda point: _tell(bars, point),
    )
    bars.remove_task(task)
    return Shares(answers, points)


def _tell(bars: Progress, point: Point) -> None:
    """A line on stderr where it is no terminal, and so shows no bar."""
    if not bars.console.is_terminal:
        bars.console.print(f"router threshold {point.threshold:g}: share {point.share:.2%}")


async def _measured(
    deployment: Deployment, wanted: Wanted, threshold: float | None, bars: Progress
) -> list[Window]:
    task = bars.add_task("measuring", total=wanted.seconds * len(wanted.concurrency))
    windows = await measure(
        deployment,
        wanted.prompts,
        wanted.concurrency,
        wanted.seconds,
        wanted.max_tokens,
        threshold,
        lambda seconds: bars.advance(task, seconds),
    )
    bars.remove_task(task)
    return windows


def _advice(findings: Findings, windows: Sequence[Window], bars: Progress) -> list[Advice]:
    task = bars.add_task("planning", total=1.0)
    outlooks = planning.plan(
        findings.parameters, lambda done, what: bars.update(task, completed=done)
    )
    bars.remove_task(task)
    found = []
    for window, outlook in zip(windows, outlooks, strict=True):
        by_vector = {row.thresholds: row.tokens_per_s for row in outlook.rows}
        found.append(Advice(window, by_vector.get(window.thresholds or ()), outlook))
    return found


def _write(path: Path, findings: Findings, name: str) -> None:
    comment = f"Measured by `tokenrouter calibrate` on the deployment {name}."
    try:
        path.write_text(parameter_writing.write(findings.parameters, comment), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out: {path} cannot be written: {error}") from error
