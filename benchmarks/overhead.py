"""Decode speed of a deployment that routes nothing, against stock SGLang on the same model.

    python benchmarks/overhead.py [--rounds 5] [--models demo random] [--json FILE] [--plot PNG]

Four contestants take turns in every round: ``sglang.launch_server`` without its overlap
schedule (the reference), with its defaults, ``NAME/small`` and ``NAME`` at p = 0, where the
small model writes everything. All have the same CPU patches and threads, and answer the same
prompts through /v1/completions, streamed and not. Whoever has no turn is stopped (stock
servers, which spin when idle) or must be idle (ours; its use of CPU is checked). The CPU time
of each process is given too: it depends less on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import random_model
from clients import ask_all
from overhead_report import plot, summary
from served import Server, served, stock

from tokenrouter.configuration.sources import DEMO_MODELS

PROMPT_LENGTH = 24
POOL_TOKENS = 20_000
REFERENCE = "stock"


@dataclass(frozen=True)
class Contestant:
    """``model``: what its requests name; ``spins``: it must be stopped while others work."""

    name: str
    server: Server
    model: str
    spins: bool

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While it lasts, this one may run."""
        if self.spins:
            self.server.signal(signal.SIGCONT)
        yield
        if self.spins:
            self.server.signal(signal.SIGSTOP)


@contextmanager
def contestants(folder: Path, threads: int) -> Iterator[list[Contestant]]:
    """All servers, started one after the other and waiting for their first turn."""
    model = ("--dtype", "float32", "--max-total-tokens", str(POOL_TOKENS))
    with ExitStack() as stack:
        found = []
        for name, more in ((REFERENCE, ("--disable-overlap-schedule",)), ("stock default", ())):
            server = stack.enter_context(stock(folder, *model, *more, OMP_NUM_THREADS=str(threads)))
            server.signal(signal.SIGSTOP)
            found.append(Contestant(name, server, str(folder), spins=True))
        ours = stack.enter_context(served(_config(folder)))
        found.append(Contestant("alone", ours, "bench/small", spins=False))
        found.append(Contestant("p = 0", ours, "bench", spins=False))
        yield found


def _config(folder: Path) -> dict[str, Any]:
    model = {"dtype": "float32", "max_total_tokens": POOL_TOKENS}
    return {
        "served_name": "bench",
        "algorithm": "random",
        "router_threshold": 0.0,
        "models": [
            {"name": "small", "model_path": str(folder), **model},
            {"name": "large", "model_path": str(DEMO_MODELS / "large"), **model},
        ],
    }


def turn(
    each: Contestant, prompts: Sequence[Sequence[int]], tokens: int, stream: bool
) -> dict[str, Any]:
    """One contestant's tokens per second on ``prompts``, and its CPU milliseconds per token.

    From the requests, which have short prompts, to the last token that anyone gets.
    """
    with each.turn():
        before = each.server.cpu_seconds()
        started, answers = ask_all(each.server.port, each.model, prompts, tokens, stream)
        after = each.server.cpu_seconds()
    seconds = max(answer.last for answer in answers) - started
    written = len(prompts) * tokens
    cpu = {
        title: 1e3 * (spent - before.get(title, 0.0)) / written for title, spent in after.items()
    }
    return {"tokens_per_s": written / seconds, "cpu_ms_per_token": cpu}


def compete(
    everyone: Sequence[Contestant], concurrencies: Sequence[int], rounds: int, tokens: int
) -> list[dict[str, Any]]:
    """One row per turn; the order of turns rotates from round to round."""
    rows = []
    rng = random.Random(0)
    for number in range(-1, rounds):
        for concurrency in concurrencies:
            for stream in (False, True):
                order = [*everyone[number % 4 :], *everyone[: number % 4]]
                prompts = [
                    [rng.randrange(256) for _ in range(PROMPT_LENGTH)] for _ in range(concurrency)
                ]
                for each in order:
                    result = turn(each, prompts, tokens if number >= 0 else 16, stream)
                    setting = {"round": number, "concurrency": concurrency, "stream": stream}
                    rows.append({"contestant": each.name, **setting, **result})
                speeds = {row["contestant"]: row["tokens_per_s"] for row in rows[-4:]}
                print(
                    f"  round {number}, {concurrency} requests, {'stream' if stream else 'whole'}: "
                    + ", ".join(f"{each.name} {speeds[each.name]:.0f}" for each in everyone)
                    + " tokens/s",
                    flush=True,
                )
    return [row for row in rows if row["round"] >= 0]  # round -1 warms up


def idle_share(server: Server, seconds: float = 5.0) -> float:
    """CPU time per second of a server that has nothing to do."""
    before = sum(server.cpu_seconds().values())
    time.sleep(seconds)
    return (sum(server.cpu_seconds().values()) - before) / seconds


def main() -> None:
    """Print a table per model; write the rows and a plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    models = ("demo", "random")
    parser.add_argument("--models", nargs="+", choices=models, default=models)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--tokens", type=int, nargs=2, default=(400, 60), metavar=("DEMO", "RANDOM")
    )
    parser.add_argument("--threads", type=int, default=1, help="of the model, for everyone")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="PNG")
    arguments = parser.parse_args()
    # So that a run that is told to stop takes its servers with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    tokens = dict(zip(models, arguments.tokens, strict=True))
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for model in arguments.models:
            folder = DEMO_MODELS / "small"
            if model == "random":
                folder = random_model.build(Path(scratch))
            print(f"{model}: starting four contestants", flush=True)
            with contestants(folder, arguments.threads) as everyone:
                idle = idle_share(everyone[-1].server)
                rows = compete(everyone, arguments.concurrency, arguments.rounds, tokens[model])
            startup = {each.name: each.server.startup_s for each in everyone}
            result[model] = {"rows": rows, "idle_cpu": idle, "startup_s": startup}
            print(f"{model}: our idle server uses {idle:.2%} of a core", flush=True)
            print(summary(rows, REFERENCE), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))
    if arguments.plot:
        plot({model: each["rows"] for model, each in result.items()}, REFERENCE, arguments.plot)


if __name__ == "__main__":
    main()
