"""How much of a common prompt is computed more than once, here and in stock SGLang.

    python benchmarks/prefix_sharing.py [--requests 16] [--prefix 600] [--rounds 3]

All requests come at once: a common beginning that no cache has yet, and 20 tokens of their own
(``burst``), or one prompt with ``n`` samples (``n``). Work: prompt tokens computed, over those
that must be (the beginning once, and what is each one's own; with ``n``, the last token of each:
a request that SGLang sends ahead computes the rest). Time: until all have a token.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

import httpx
from overhead import Contestant, contestants

from tokenrouter.configuration.sources import DEMO_MODELS

OWN_TOKENS = 20


async def ask(client: httpx.AsyncClient, each: Contestant, ids: Sequence[int], n: int) -> list[Any]:
    body: dict[str, Any] = {
        "input_ids": list(ids),
        "sampling_params": {"max_new_tokens": 1, "temperature": 0, "n": n},
    }
    if not each.spins:
        body["model"] = each.model
    answer = await client.post(f"{each.server.url}/generate", json=body)
    answer.raise_for_status()
    content = answer.json()
    return content if isinstance(content, list) else [content]


async def burst(each: Contestant, prompts: Sequence[Sequence[int]], n: int) -> tuple[int, float]:
    """Prompt tokens that were computed, and seconds until every request had its token."""
    async with httpx.AsyncClient(timeout=120) as client:
        started = time.monotonic()
        answers = await asyncio.gather(*(ask(client, each, prompt, n) for prompt in prompts))
        elapsed = time.monotonic() - started
    metas = [answer["meta_info"] for several in answers for answer in several]
    return sum(meta["prompt_tokens"] - meta["cached_tokens"] for meta in metas), elapsed


def measure(
    everyone: Sequence[Contestant], requests: int, prefix: int, rounds: int
) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """(work ratio, seconds) of each round, by kind and contestant."""
    rng = random.Random(1)
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for kind in ("burst", "n"):
            common = [rng.randrange(256) for _ in range(prefix)]
            ends = [[rng.randrange(256) for _ in range(OWN_TOKENS)] for _ in range(requests)]
            prompts = [[*common, *end] for end in ends] if kind == "burst" else [common]
            n = 1 if kind == "burst" else requests
            least = prefix + requests * OWN_TOKENS if kind == "burst" else requests
            for each in everyone:
                with each.turn():
                    work, seconds = asyncio.run(burst(each, prompts, n))
                found.setdefault((kind, each.name), []).append((work / least, seconds))
    return found


def main() -> None:
    """Print one line per kind and contestant."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--prefix", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with contestants(DEMO_MODELS / "large", 1) as everyone:
        chosen = [each for each in everyone if each.name in ("stock", "alone")]
        found = measure(chosen, arguments.requests, arguments.prefix, arguments.rounds)
    for (kind, name), values in found.items():
        work, seconds = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"{kind}, {name}: {work:.2f} times the least work, {1e3 * seconds:.0f} ms")


if __name__ == "__main__":
    main()
