"""`tokenrouter calibrate`: measures a deployment, and says how to set its thresholds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokenrouter.errors import ConfigError

if TYPE_CHECKING:
    from tokenrouter.calibration.prompts import Prompt
    from tokenrouter.calibration.run import Wanted

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
    from tokenrouter.calibration.run import calibrated
    from tokenrouter.cli_progress import progress_bars
    from tokenrouter.offline.engine import Engine

    if sum((url is not None, config is not None, demo)) != 1:
        raise ConfigError("calibrate: give the URL of a server, or --config FILE, or --demo")
    asked = sources.read(prompts) if prompts else sources.of_demo() if demo else sources.ours()
    wanted = _checked(asked, concurrency or CONCURRENCY, seconds, share or (), max_tokens, out)
    with progress_bars(shown=not json) as bars:
        if url is not None:
            result = asyncio.run(calibrated(wanted, bars, url=url, api_key=api_key))
        else:
            task = bars.add_task("starting", total=None)
            with Engine(config, demo=demo) as engine:
                bars.remove_task(task)
                result = asyncio.run(calibrated(wanted, bars, socket=engine.socket))
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
) -> Wanted:
    from tokenrouter.calibration.run import Wanted

    problems = []
    if min(concurrency) < 1:
        problems.append(f"--concurrency: must be from 1 on, got {min(concurrency)}")
    if not 0 <= seconds < float("inf"):
        problems.append(f"--seconds: must be a time, got {seconds:g}")
    if wrong := [each for each in share if not 0 < each < 1]:
        problems.append(f"--share: must be between 0 and 1, such as 0.1, got {wrong[0]:g}")
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
    return Wanted(prompts, unique, seconds, tuple(share), max_tokens, out)
