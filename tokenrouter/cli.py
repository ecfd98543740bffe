"""The command line. Loads what a command needs only when it runs, and never torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tokenrouter import __version__
from tokenrouter.cli_flags import expand, gather
from tokenrouter.errors import ConfigError, StartupError

DEMO_CONFIG = Path(__file__).parent / "demo" / "demo.yaml"

app = typer.Typer(
    name="tokenrouter",
    help="Serve token-level routing between language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exits 2 if the configuration is wrong, 1 if it cannot start."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # algorithms given as module:Class
    try:
        app(args=expand(sys.argv[1:] if arguments is None else arguments))
    except (ConfigError, StartupError) as error:
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
def serve(
    config: Annotated[Path | None, typer.Option(help="YAML file.", metavar="FILE")] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Serve the embedded demo pair.")] = False,
    model: Annotated[
        list[str] | None, typer.Option(help="A model's folder.", metavar="NAME=PATH ...")
    ] = None,
    threshold: Annotated[
        list[str] | None, typer.Option(help="A model's batch threshold.", metavar="NAME=N ...")
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="A name, or module:Class.")] = None,
    router_threshold: Annotated[float | None, typer.Option(help="Its main setting.")] = None,
    algorithm_args: Annotated[
        str | None, typer.Option(help="Its other arguments.", metavar="JSON")
    ] = None,
    served_name: Annotated[str | None, typer.Option(help="Model name of routed requests.")] = None,
    prefill: Annotated[str | None, typer.Option(help="lazy or eager.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="TCP port; 0: a free one.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of random draws.")] = None,
    max_wait_ms: Annotated[float | None, typer.Option(help="Longest wait for a batch.")] = None,
    socket_dir: Annotated[Path | None, typer.Option(help="Private, for sockets.")] = None,
    member_port: Annotated[
        list[str] | None,
        typer.Option(help="Fix a port: input, peer or nccl.", metavar="NAME.PORT=VALUE ..."),
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
) -> None:
    """Serve one deployment until it is stopped."""
    from tokenrouter.config import load
    from tokenrouter.processes import logs

    if demo and config:
        raise ConfigError("--demo: brings its own configuration; leave out --config")
    scalars: dict[str, Any] = {
        "algorithm": algorithm,
        "router_threshold": router_threshold,
        "served_name": served_name,
        "prefill": prefill,
        "host": host,
        "port": port,
        "seed": seed,
        "max_wait_ms": max_wait_ms,
        "socket_dir": socket_dir,
        "log_level": log_level,
    }
    flags = gather(scalars, model, threshold, algorithm_args, member_port)
    loaded = load(DEMO_CONFIG if demo else config, flags)
    logs.set_up("supervisor", loaded.log_level)

    from tokenrouter.supervisor import serve as run

    raise typer.Exit(run(loaded, lambda url: _announce(url, loaded.served_name, demo)))


def _announce(url: str, name: str, demo: bool) -> None:
    """Say on stdout that the server answers, and how to talk to it."""
    typer.echo(f"serving {name} at {url}")
    if demo:
        from tokenrouter.demo.show import how_to_talk

        typer.echo(how_to_talk(url, name))
    sys.stdout.flush()
