"""`tokenrouter calibrate`: measures a deployment, and says how to set its thresholds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokenrouter.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from tokenrouter.calibration.client import Deployment
    from tokenrouter.calibration.findings import Findings
    from tokenrouter.calibration.prompts import Prompt
    from tokenrouter.calibration.report import Advice, Result, Shares
    from tokenrouter.calibration.windows import Window

CONCURRENCY = (1, 2, 4, 8)

Url = Annotated[str | None, typer.Argument(help="Of a running server.", metavar="URL")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="Start this deployment meanwhile, instead.", metavar="FILE"),
]
Demo = Annotated[bool, typer.Option("--demo", help="Start the embedded demo pair meanwhile.")]
Out = Annotated[
    Path | None, typer.Option(help="Write the parameters for plan.", metavar="PARAMS.yaml")
]
Concurrency = Annotated[
    list[int] | None,
    typer.Option(
        help="Requests at once; one measurement each. [default: 1 2 4 8]", metavar="N ..."
    ),
]
Seconds = Annotated[
    float, typer.Option(help="Time for each measurement; 0: only --share.", metavar="S")
]
PromptFile = Annotated[
    Path | None,
    typer.Option(
        "--prompts",
        help="What is asked: lines of text, or of JSON with messages, prompt or text.",
        metavar="FILE",
    ),
]
ShareOption = Annotated[
    list[float] | None,
    typer.Option(
        help="Find the router threshold for this share of tokens of other models than the first.",
        metavar="X ...",
    ),
]
MaxTokens = Annotated[int, typer.Option(help="Longest answer.", metavar="N")]
Json = Annotated[bool, typer.Option("--json", help="Tell programs instead of people.")]
ApiKey = Annotated[
    str | None,
    typer.Option(help="Of the server at URL.", metavar="KEY", envvar="TOKENROUTER_API_KEY"),
]


@dataclass(frozen=True)
class _Wanted:
    """What to measure; flags that were checked."""

    prompts: Sequence[Prompt]
    concurrency: tuple[int, ...]
    seconds: float
    share: tuple[float, ...]
    max_tokens: int
    out: Path | None


def calibrate(
    url: Url = None,
    config: ConfigFile = None,
    demo: Demo = False,
    out: Out = None,
    concurrency: Concurrency = None,
    seconds: Seconds = 10.0,
    prompts: PromptFile = None,
    share: ShareOption = None,
    max_tokens: MaxTokens = 256,
    json: Json = False,
    api_key: ApiKey = None,
) -> None:
    """Measure a deployment in routed operation; recommend thresholds, write a parameter file."""
    from tokenrouter.calibration import prompts as sources
    from tokenrouter.calibration import report
    from tokenrouter.offline.engine import Engine

    if sum((url is not None, config is not None, demo)) != 1:
        raise ConfigError("calibrate: give the URL of a server, or --config FILE, or --demo")
    asked = sources.read(prompts) if prompts else sources.of_demo() if demo else sources.ours()
    wanted = _checked(asked, concurrency or CONCURRENCY, seconds, share or (), max_tokens, out)
    with _bars(shown=not json) as bars:
        if url is not None:
            result = asyncio.run(_calibrated(wanted, bars, url=url, api_key=api_key))
        else:
            task = bars.add_task("starting", total=None)
            with Engine(config, demo=demo) as engine:
                bars.remove_task(task)
                result = asyncio.run(_calibrated(wanted, bars, socket=engine.socket))
    if json:
        typer.echo(report.as_json(result))
    else:
        report.show(result)


def _checked(
    prompts: Sequence[Prompt],
    concurrency: Sequence[int],
    seconds: float,
    share: Sequence[float],
    max_tokens: int,
    out: Path | None,
) -> _Wanted:
    problems = []
    if min(concurrency) < 1:
        problems.append(f"--concurrency: must be from 1 on, got {min(concurrency)}")
    if not 0 <= seconds < float("inf"):
        problems.append(f"--seconds: must be a time, got {seconds:g}")
    if not all(0 < each < 1 for each in share):
        problems.append(f"--share: must be between 0 and 1, such as 0.1, got {max(share):g}")
    if max_tokens < 2:
        problems.append(f"--max-tokens: must be from 2 on, got {max_tokens}")
    if seconds == 0 and not share:
        problems.append("--seconds: 0 measures nothing; give more, or --share")
    if seconds == 0 and out is not None:
        problems.append("--out: --seconds 0 measures nothing to write; give more")
    if out is not None and not (out.parent.is_dir() and os.access(out.parent, os.W_OK)):
        problems.append(f"--out: {out.parent} is no folder that can be written to")
    if problems:
        raise ConfigError(*problems)
    unique = tuple(dict.fromkeys(concurrency))
    return _Wanted(prompts, unique, seconds, tuple(share), max_tokens, out)


async def _calibrated(
    wanted: _Wanted,
    bars: Progress,
    *,
    url: str | None = None,
    api_key: str | None = None,
    socket: str | None = None,
) -> Result:
    from tokenrouter.calibration.client import SOCKET_HOST, connected
    from tokenrouter.calibration.report import Result

    findings, advice, shares, threshold = None, [], None, None
    async with connected(url or SOCKET_HOST, api_key, socket=socket) as deployment:
        if wanted.share:
            shares = await _shares(deployment, wanted, bars)
            if len(shares.answers) == 1:
                threshold = shares.answers[0].threshold
        windows = await _measured(deployment, wanted, threshold, bars) if wanted.seconds else []
        facts = deployment.facts
    if windows:
        from tokenrouter.calibration.findings import find

        findings = find(facts, windows)
        advice = _advice(findings, windows, bars)
        if wanted.out is not None:
            _write(wanted.out, findings, facts.name)
    return Result(
        facts, len(wanted.prompts), threshold, findings, advice, shares,
        wanted.out if windows else None,
    )  # fmt: skip


async def _shares(deployment: Deployment, wanted: _Wanted, bars: Progress) -> Shares:
    from tokenrouter.calibration.report import Shares
    from tokenrouter.calibration.share import calibrate as find

    task = bars.add_task("router threshold", total=None)
    answers, points = await find(
        deployment,
        wanted.prompts,
        wanted.share,
        wanted.max_tokens,
        max(wanted.concurrency),
        lambda: bars.advance(task),
    )
    bars.remove_task(task)
    return Shares(answers, points)


async def _measured(
    deployment: Deployment, wanted: _Wanted, threshold: float | None, bars: Progress
) -> list[Window]:
    from tokenrouter.calibration.measuring import measure

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
    from tokenrouter.calibration.report import Advice
    from tokenrouter.throughput_model import planning

    task: TaskID = bars.add_task("planning", total=1.0)
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
    from tokenrouter.throughput_model.parameter_file import write

    comment = f"Measured by `tokenrouter calibrate` on the deployment {name}."
    try:
        path.write_text(write(findings.parameters, comment), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out: {path} cannot be written: {error}") from error


@contextmanager
def _bars(shown: bool) -> Iterator[Progress]:
    """Shows on stderr how far it is, if ``shown`` and somebody looks."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    hidden = not (shown and console.is_terminal)
    with Progress(*columns, console=console, transient=True, disable=hidden) as bars:
        yield bars
