"""How soon the demo pair answers after its start, and a process of it after it was killed.

    python benchmarks/readiness.py [--rounds 3] [--json FILE]

Start: from the command to ``/health`` saying 200, and to the first answer. Kill: SIGKILL to one
process, then from that moment to the first answer that needs it.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
from served import Server, served

from tokenrouter.configuration.sources import DEMO_MODELS

WANTED_S = {"ready": 12.0, "small": 5.0, "large": 5.0}
NEEDS = {"small": "bench/small", "large": "bench/large", "detokenizer": "bench/small",
         "front-end": "bench/small"}  # fmt: skip
"""Process to the model of a request that it takes part in."""
PATIENCE_S = 60.0
PAUSE_S = 0.02


def config() -> dict[str, Any]:
    members = [
        {"name": name, "model_path": str(DEMO_MODELS / name), "dtype": "float32"}
        for name in ("small", "large")
    ]
    return {
        "served_name": "bench", "algorithm": "entropy", "router_threshold": 0.1,
        "models": members, "max_restarts": 100,
    }  # fmt: skip


def answer(url: str, model: str, since: float) -> float:
    """Seconds from ``since`` to the first answer of ``model``, asked for again and again."""
    body = {"model": model, "prompt": "Dan has 4 boxes", "max_tokens": 2, "temperature": 0}
    while time.monotonic() < since + PATIENCE_S:
        try:
            response = httpx.post(f"{url}/v1/completions", json=body, timeout=PATIENCE_S)
        except httpx.TransportError:
            time.sleep(PAUSE_S)
            continue
        if response.status_code == 200:
            return time.monotonic() - since
        time.sleep(PAUSE_S)
    sys.exit(f"{model} did not answer within {PATIENCE_S:.0f} s")


def kill(server: Server, name: str) -> float:
    """Kill one process; seconds until what needs it is answered again."""
    pid = server.pid_of(name)
    started = time.monotonic()
    psutil.Process(pid).send_signal(signal.SIGKILL)
    while psutil.pid_exists(pid) and server.pid_of(name) == pid:
        time.sleep(0.001)
    return answer(server.url, NEEDS[name], started)


def main() -> None:
    """Print the median and the extremes of everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", nargs="*", choices=NEEDS, default=list(NEEDS))
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    seconds: dict[str, list[float]] = {}
    for number in range(arguments.rounds):
        with served(config()) as server:
            seconds.setdefault("ready", []).append(server.startup_s)
            spent = sum(server.cpu_seconds().values())
            seconds.setdefault("CPU time until then", []).append(spent)
            first = server.startup_s + answer(server.url, "bench", time.monotonic())
            seconds.setdefault("first answer", []).append(first)
            for name in arguments.processes:
                seconds.setdefault(name, []).append(kill(server, name))
        latest = ", ".join(f"{what} {values[-1]:.2f}" for what, values in seconds.items())
        print(f"round {number + 1}, seconds: {latest}", flush=True)
    for what, values in seconds.items():
        wanted = f" (wanted: under {WANTED_S[what]:.0f})" if what in WANTED_S else ""
        middle = statistics.median(values)
        print(f"{what}: {middle:.2f} s, {min(values):.2f} to {max(values):.2f}{wanted}")
    if arguments.json:
        arguments.json.write_text(json.dumps(seconds, indent=1))


if __name__ == "__main__":
    main()
