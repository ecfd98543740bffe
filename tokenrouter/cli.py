"""The command line. Loads what a command needs only when it runs, and never torch."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tokenrouter import __version__
from tokenrouter.cli_calibrate import calibrate
from tokenrouter.cli_flags import check_known, expand, gather
from tokenrouter.cli_options import with_deployment_flags
from tokenrouter.cli_plan import plan
from tokenrouter.cli_train_router import train_router
from tokenrouter.config import DEMO_CONFIG, Config, Reading, read, served
from tokenrouter.errors import ConfigError, MeasurementError, StartupError

app = typer.Typer(
    name="tokenrouter",
    help="Serve token-level routing between language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file.", metavar="FILE")]
Demo = Annotated[bool, typer.Option("--demo", help="The embedded demo pair.")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exits 2 if the configuration is wrong, 1 if something else is."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # algorithms given as module:Class
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        check_known(arguments)
        app(args=expand(arguments))
    except (ConfigError, StartupError, MeasurementError) as error:
        typer.echo(f"tokenrouter: error: {error}", err=True)
        raise SystemExit(2 if isinstance(error, ConfigError) else 1) from None


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tokenrouter {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print and exit.")
    ] = False,
) -> None:
    """Serve token-level routing between language models."""


@app.command()
@with_deployment_flags
def serve(config: ConfigFile = None, demo: Demo = False, **flags: Any) -> None:
    """Serve one deployment until it is stopped."""
    from tokenrouter.processes import logs, titles

    reading = _read(config, demo, flags)
    loaded = served(reading)
    titles.entitle(loaded, "supervisor")  # hides an --api-key from the list of processes
    logs.set_up("supervisor", loaded.log_level, loaded.log_format)
    for warning in reading.warnings:
        logging.getLogger(__name__).warning("%s", warning)

    from tokenrouter.supervisor import serve as run

    def announce(url: str) -> None:
        titles.entitle(loaded, "supervisor", url)
        _announce(url, loaded, demo)

    raise typer.Exit(run(loaded, announce))


@app.command()
@with_deployment_flags
def check(
    config: ConfigFile = None,
    demo: Demo = False,
    json: Annotated[bool, typer.Option("--json", help="Tell programs instead of people.")] = False,
    gpus: Annotated[
        int | None, typer.Option(help="Check for a machine with so many GPUs.", metavar="N")
    ] = None,
    gpu_gib: Annotated[
        float | None, typer.Option(help="Memory of each of them.", metavar="GIB")
    ] = None,
    **flags: Any,
) -> None:
    """Say what would be served, without starting anything; exits 2 with everything wrong."""
    from tokenrouter.configuration import report
    from tokenrouter.configuration.examine import Examination, examine
    from tokenrouter.configuration.machine import chosen_machine
    from tokenrouter.configuration.validation import with_origins

    reading = _read(config, demo, flags)
    machine = chosen_machine(gpus, gpu_gib)
    found = Examination() if reading.config is None else examine(reading.config, machine)
    of_machine = with_origins(found.problems, reading.origins)
    found.problems[:] = dict.fromkeys((*reading.problems, *of_machine))
    found.warnings[:0] = reading.warnings
    if json:
        typer.echo(report.as_json(reading.config, found))
        raise typer.Exit(2 if found.problems else 0)
    if found.problems or reading.config is None:
        raise ConfigError(*found.problems)
    report.show(reading.config, machine, found)


@app.command("config")
@with_deployment_flags
def show_config(config: ConfigFile = None, demo: Demo = False, **flags: Any) -> None:
    """Print the configuration in force as YAML, with the origin of each value."""
    from tokenrouter.configuration.dump import dump

    reading = _read(config, demo, flags)
    typer.echo(dump(served(reading), reading), nl=False)


app.command()(plan)
app.command()(calibrate)
app.command()(train_router)


def _read(config: Path | None, demo: bool, flags: dict[str, Any]) -> Reading:
    if demo and config:
        raise ConfigError("--demo: brings its own configuration; leave out --config")
    return read(DEMO_CONFIG if demo else config, gather(flags))


def _announce(url: str, config: Config, demo: bool) -> None:
    """Say on stdout that the server answers, and how to talk to it."""
    typer.echo(f"serving {config.served_name} at {url}")
    if demo:
        from tokenrouter.demo.show import how_to_talk

        typer.echo(how_to_talk(url, config.served_name, keyed=config.api_key is not None))
    sys.stdout.flush()
