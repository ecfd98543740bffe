"""Both ranks of a tiny model, each in a process; rank 0 goes through random histories.

    python -m tests.subserver.sglang_compat.two_ranks FOLDER RANK PORT SOCKET ENTRY [CORRUPT]

builds rank RANK of the model in FOLDER (ENTRY: further keys of its configuration, as JSON). Rank
0 checks its tokens against plain code; at the end each rank checks its pools and prints its
digest. With CORRUPT, rank 1 shuffles its free KV slots midway.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import torch
import zmq

from tests.subserver.sglang_compat.driver import Driver
from tests.subserver.sglang_compat.tiny_models import TinyModel
from tokenrouter.config import ModelConfig
from tokenrouter.ipc.channels import Inbox, Outbox
from tokenrouter.ipc.messages import Close
from tokenrouter.ipc.ports import MemberPorts
from tokenrouter.subserver.ranks import LeadingEngine, Mirror
from tokenrouter.subserver.sglang_compat.cpu_imports import prepare_sglang_import

SEEDS = range(6)


def build(folder: Path, rank: int, port: int, entry: dict[str, Any]) -> Any:
    prepare_sglang_import()
    from tokenrouter.subserver.sglang_compat.cpu_patches import apply_cpu_patches
    from tokenrouter.subserver.sglang_compat.loading import build_engine
    from tokenrouter.subserver.sglang_compat.model_registry import register_models

    apply_cpu_patches()
    register_models(["LlamaForCausalLM", "Qwen3ForCausalLM"])
    config = ModelConfig.model_validate(
        {"name": "m", "model_path": folder, "dtype": "float32", "tp_size": 2, **entry}
    )
    return build_engine(config, MemberPorts("", "", port), [0], 5, rank)


def lead(engine: Any, address: str, folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    from tests.subserver.sglang_compat import test_engine_checks as checks
    from tests.subserver.sglang_compat.conftest import Served
    from tests.subserver.sglang_compat.test_engine_exact import test_any_history as go_through

    plain = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()
    outbox = Outbox(zmq.Context.instance(), address, 0)
    leader = LeadingEngine(engine, [outbox])
    model = TinyModel(folder, plain)
    for seed in SEEDS:
        driver = Driver(leader)
        go_through(Served(model, leader), driver, seed)
        driver.release_all()
    driver = Driver(leader)
    for chunk, alone in ((1, True), (1, False), (3, False)):
        checks.test_over_several_steps(
            Served(model, leader), driver, random.Random(chunk), chunk, alone
        )
        driver.release_all()
    outbox.post(Close(0))
    outbox.flush()


def follow(engine: Any, address: str, corrupt: bool) -> None:
    inbox = Inbox(zmq.Context.instance(), address, {0: 0})
    mirror = Mirror(engine)
    rng = random.Random(0)
    calls = 0
    while True:
        inbox.socket.poll()
        for _, call in inbox.drain():
            if isinstance(call, Close):
                return
            calls += 1
            if corrupt and calls == 100:
                pages = engine.scheduler.token_to_kv_pool_allocator.free_pages
                pages[:] = pages[torch.tensor(rng.sample(range(len(pages)), len(pages)))]
            mirror.apply(call)


def main() -> None:
    folder, rank, port, address, entry, *rest = sys.argv[1:]
    torch.set_num_threads(1)
    engine = build(Path(folder), int(rank), int(port), json.loads(entry))
    if rank == "0":
        lead(engine, address, Path(folder))
    else:
        follow(engine, address, corrupt=bool(rest))
    engine.check_pools()
    engine.scheduler.tp_group.barrier()
    print(json.dumps({"digest": engine.digest(), "free": engine.free_tokens()}))


if __name__ == "__main__":
    main()
