"""A member's process: load, report, wait for the others, serve.

Called by the zygote in a child of its own; hands over to `loop.Subserver`.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence

import zmq

from tokenrouter.config import Config
from tokenrouter.ipc.channels import Outbox
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.supervision import ChildLink
from tokenrouter.processes import kernel
from tokenrouter.subserver.batching import Limits, Rules
from tokenrouter.subserver.loop import Subserver
from tokenrouter.subserver.member import load_member
from tokenrouter.subserver.peers import PeerLinks
from tokenrouter.subserver.ranks import LeadingEngine
from tokenrouter.subserver.recording import Recorder


def run_member(
    config: Config, ports: Ports, index: int, cores: Sequence[int], link: ChildLink
) -> None:
    """Be member ``index``, on ``cores`` (empty: wherever the system likes), until SIGTERM."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    # A context starts its I/O thread with its first socket: before pinning, so that
    # messages move while every core of the member computes.
    context.socket(zmq.PULL).close()
    if cores:
        os.sched_setaffinity(0, cores)
    kernel.wake_on_time()
    member = load_member(config, ports, index, cores)
    folder = config.record_decisions
    recorder = None if folder is None else Recorder(config, folder, index)
    link.send(member.ready)
    roster = link.roster()
    ranks = _to_ranks(context, config, ports, index, roster.generations[index])
    engine = LeadingEngine(member.ranked, ranks) if member.ranked else member.engine
    engine.limit_vocabulary(min(each.vocab_size for each in roster.members))
    links = PeerLinks(context, ports, index, roster, link)
    subserver = Subserver(
        index,
        config.names,
        roster,
        engine,
        links,
        rules_of(config, index),
        member.vocabulary,
        eager=config.prefill == "eager",
        profile=member.profile,
        recorder=recorder,
    )
    gc.collect()
    gc.freeze()
    try:
        subserver.run()
    finally:
        if recorder is not None:
            recorder.close()
        links.close()
        for outbox in ranks:
            outbox.close()
        context.term()


def _to_ranks(
    context: zmq.Context[zmq.Socket[bytes]],
    config: Config,
    ports: Ports,
    index: int,
    generation: int,
) -> list[Outbox]:
    """A link to each of the member's other ranks, which share its generation."""
    return [
        Outbox(context, ports.rank(index, rank), index, generation, generation)
        for rank in range(1, config.models[index].tp_size)
    ]


def rules_of(config: Config, index: int) -> Rules:
    """How member ``index`` batches, until a plan reaches it.

    Also where it was started again, beside members that hold a plan: no row of a plan is below
    the configuration's, with which this one can therefore not deadlock.
    """
    model = config.models[index]
    return Rules(
        thresholds=config.first_thresholds,
        limits=Limits(model.max_batch, model.chunked_prefill_size),
        max_wait=None if config.max_wait_ms is None else config.max_wait_ms / 1e3,
    )
