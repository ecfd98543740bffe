"""The process of a tensor-parallel rank other than the first.

Called by the zygote in a child of its own; hears from the member's rank 0 (`ranks.py`) and
repeats its engine's calls.
"""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Sequence

import zmq

from tokenrouter.config import Config
from tokenrouter.ipc.channels import Inbox
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.supervision import ChildLink, Ready
from tokenrouter.ipc.waiting import Waiter
from tokenrouter.subserver.member import load_rank
from tokenrouter.subserver.profile import profile
from tokenrouter.subserver.ranks import Mirror


def run_follower(
    config: Config, ports: Ports, index: int, rank: int, cores: Sequence[int], link: ChildLink
) -> None:
    """Be rank ``rank`` (from 1 on) of member ``index``, on ``cores``, until SIGTERM."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    # As in `process.run_member`: the I/O thread is not to be pinned.
    context.socket(zmq.PULL).close()
    if cores:
        os.sched_setaffinity(0, cores)
    engine = load_rank(config, ports, index, cores, rank)
    if config.planned:
        profile(engine, config.models[index].max_batch, engine.replay, math.inf)  # as rank 0 does
    mirror = Mirror(engine)
    link.send(Ready())
    generation = link.roster().generations[index]
    inbox = Inbox(context, ports.rank(index, rank), {index: generation}, generation)
    waiter = Waiter([inbox.socket], link)
    gc.collect()
    gc.freeze()
    try:
        while True:
            waiter.wait(None)
            link.receive()  # only its pings concern a rank: who dies concerns the leader
            for _, call in inbox.drain():
                mirror.apply(call)
    finally:
        waiter.close()
        inbox.close()
        context.term()
