"""What a decode step costs beside the forward pass: our engine against SGLang's own scheduler.

    python benchmarks/engine_overhead.py [--model FOLDER] [--batches 1 4 16] [--rounds 5]

Both run the same greedy requests on one scheduler, in turns, on one core. The CPU time of a
step (not its duration, so that a busy machine disturbs little) is given whole, and with the
model replaced by a constant, which leaves the overhead. Stock: ``prepare_for_decode``,
``run_batch`` and reading the tokens; its loop does more than that.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenrouter.config import Config
from tokenrouter.configuration.sources import DEMO_MODELS
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.ipc.ports import choose_ports
from tokenrouter.schedulers.signals import Entropy, Signal
from tokenrouter.subserver.engine import Visit
from tokenrouter.subserver.sglang_compat.preload import preload

STEPS = 100
PROMPT_LENGTH = 20


def load(folder: Path) -> Any:
    """An engine for the model in ``folder``."""
    entry = {"name": "m", "model_path": folder, "dtype": "float32", "max_total_tokens": 20_000}
    config = Config.model_validate({"models": [entry]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        preload(config)
        from tokenrouter.subserver.sglang_compat.loading import build_engine

        ports = choose_ports(Path(tempfile.mkdtemp()), ["m"], {})
        return build_engine(config.models[0], ports.members[0], [0], 1)


def prompts(count: int, vocabulary: int) -> list[list[int]]:
    """The same prompts for everyone."""
    rng = random.Random(0)
    return [[rng.randrange(vocabulary) for _ in range(PROMPT_LENGTH)] for _ in range(count)]


def ours(engine: Any, batch: int, signals: Sequence[Signal] = ()) -> list[float]:
    """CPU milliseconds of each of our steps."""
    visits = [
        Visit(uid, 0, len(prompt), prompt, Sampling(1000, top_k=1), Route("single", (0,), 0),
              counted=True, eager=False)
        for uid, prompt in enumerate(prompts(batch, engine.vocab_size))
    ]  # fmt: skip
    for visit in visits:
        engine.admit(visit)
    times = []
    for _ in range(STEPS + 1):
        work = [(visit, visit.pending) for visit in visits]
        start = time.thread_time()
        tokens = engine.step(work, signals).tokens
        times.append(1e3 * (time.thread_time() - start))
        for (visit, n), token in zip(work, tokens, strict=True):
            visit.computed += n
            visit.tokens.append(token)
    for visit in visits:
        engine.release(visit)
    engine.scheduler.tree_cache.evict(engine.pool_tokens)
    engine.check_pools()
    return times[1:]


def stock(engine: Any, batch: int) -> list[float]:
    """CPU milliseconds of each step of the stock scheduler."""
    import torch
    from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
    from sglang.srt.sampling.sampling_params import SamplingParams

    scheduler = engine.scheduler
    requests = []
    for prompt in prompts(batch, engine.vocab_size):
        params = SamplingParams(max_new_tokens=1000, temperature=0)
        params.normalize(None)
        request = Req(str(len(requests)), "", prompt, params)
        request.init_next_round_input(scheduler.tree_cache)
        scheduler.tree_cache.inc_lock_ref(request.last_node)
        requests.append(request)
    running = ScheduleBatch.init_new(
        requests,
        scheduler.req_to_token_pool,
        scheduler.token_to_kv_pool_allocator,
        scheduler.tree_cache,
        scheduler.model_config,
        enable_overlap=False,
        spec_algorithm=scheduler.spec_algorithm,
    )
    times = []
    with torch.no_grad():
        running.prepare_for_extend()
        scheduler.run_batch(running)
        for _ in range(STEPS):
            start = time.thread_time()
            running.prepare_for_decode()
            tokens = scheduler.run_batch(running).next_token_ids.tolist()
            times.append(1e3 * (time.thread_time() - start))
            for request, token in zip(requests, tokens, strict=True):
                request.output_ids.append(token)
        for request in requests:
            request.output_ids.append(0)
            scheduler.tree_cache.cache_finished_req(request)
    scheduler.tree_cache.evict(engine.pool_tokens)
    engine.check_pools()
    return times


@contextmanager
def constant_model(engine: Any, most: int) -> Iterator[None]:
    """Let the forward pass return constant logits."""
    import torch
    from sglang.srt.layers.logits_processor import LogitsProcessorOutput

    model = engine.scheduler.tp_worker.model_runner.model
    logits = torch.randn(most, engine.vocab_size)
    forward = model.forward
    model.forward = lambda ids, positions, batch, **options: LogitsProcessorOutput(
        next_token_logits=logits[: batch.batch_size].clone()
    )
    try:
        yield
    finally:
        model.forward = forward


def compare(engine: Any, batch: int, rounds: int) -> str:
    """Median steps of all three, taken in turns."""
    runs: dict[str, Callable[[], list[float]]] = {
        "stock": lambda: stock(engine, batch),
        "ours": lambda: ours(engine, batch),
        "ours with entropy": lambda: ours(engine, batch, (Entropy(),)),
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name] += run()
    return ", ".join(f"{name} {statistics.median(each):.3f}" for name, each in times.items())


def main() -> None:
    """Print one line per batch size and kind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=DEMO_MODELS / "small")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    engine = load(arguments.model)
    for batch in arguments.batches:
        whole = compare(engine, batch, arguments.rounds)
        with constant_model(engine, batch):
            overhead = compare(engine, batch, arguments.rounds)
        print(f"batch {batch}, CPU ms a step: {whole}; without the model: {overhead}", flush=True)


if __name__ == "__main__":
    main()
