"""Throughput of the whole stack at the paper's latencies, against the model's prediction.

    python benchmarks/timed_throughput.py [--seconds 60] [--concurrency 4] [--thresholds 1 3]

Starts a server with two timed members (6.0 and 27.9 ms a step), `random` with p = 0.35,
keeps N requests decoding, and counts the tokens that reach the client over HTTP in a steady
window: nothing starts or finishes in it.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time

import httpx
from served import served

PREDICTED = {  # tokens/s: the exact chain at p = 0.35, theta_0 = 1, by (N, theta_1)
    (1, 1): 63.43,
    (2, 1): 98.96, (2, 2): 110.3,
    (3, 1): 142.3, (3, 2): 158.1, (3, 3): 151.9,
    (4, 1): 187.2, (4, 2): 195.4, (4, 3): 208.0, (4, 4): 190.7,
}  # fmt: skip
WARM_UP_S = 3.0


class Client(threading.Thread):
    """One request whose tokens are counted as they arrive."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._prompt = f"request {number}: "
        self.tokens = 0
        self.stop = threading.Event()

    def run(self) -> None:
        body = {
            "text": self._prompt,
            "sampling_params": {"max_new_tokens": 30_000, "ignore_eos": True, "temperature": 0},
            "stream": True,
        }
        with httpx.stream("POST", f"{self._url}/generate", json=body, timeout=30) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if self.stop.is_set():
                    return
                if line.startswith("data: {"):
                    self.tokens = json.loads(line[6:])["meta_info"]["completion_tokens"]


def measure(concurrency: int, thresholds: tuple[int, int], seconds: float) -> float:
    """Tokens per second that ``concurrency`` requests get together."""
    config = {
        "served_name": "timed",
        "algorithm": "random",
        "router_threshold": 0.35,
        "models": [
            {"name": "small", "engine": "timed", "step_ms": 6.0, "threshold": thresholds[0]},
            {"name": "large", "engine": "timed", "step_ms": 27.9, "threshold": thresholds[1]},
        ],
    }
    with served(config) as server:
        clients = [Client(server.url, number) for number in range(concurrency)]
        for client in clients:
            client.start()
        time.sleep(WARM_UP_S)
        start, before = time.monotonic(), sum(client.tokens for client in clients)
        time.sleep(seconds)
        elapsed, after = time.monotonic() - start, sum(client.tokens for client in clients)
        if not all(client.is_alive() for client in clients):
            sys.exit("a request ended inside the window")
        for client in clients:
            client.stop.set()
        for client in clients:
            client.join()
    return (after - before) / elapsed


def main() -> None:
    """Print measured and predicted throughput and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--thresholds", type=int, nargs=2, default=(1, 3))
    args = parser.parse_args()
    measured = measure(args.concurrency, tuple(args.thresholds), args.seconds)
    print(f"N = {args.concurrency}, thresholds {tuple(args.thresholds)}: {measured:.1f} tokens/s")
    predicted = PREDICTED.get((args.concurrency, args.thresholds[1]))
    if predicted and args.thresholds[0] == 1:
        print(f"predicted {predicted:.1f}; ratio {measured / predicted:.3f}")


if __name__ == "__main__":
    main()
