"""Member programs that compute something slightly wrong: exactness tests must notice.

Each wraps the engine's step on member 0 and corrupts one visit in a few of its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tokenrouter.config import Config
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.supervision import ChildLink
from tokenrouter.subserver.engine import Meanwhile, StepBatch, Visit, Work
from tokenrouter.subserver.follower import run_follower
from tokenrouter.subserver.process import run_member

Step = Callable[..., StepBatch]
EVERY = 7
"""Steps from one corruption to the next."""


def zeroed_kv(*arguments: Any) -> None:
    """Key and value of one token of the first visit become zero."""

    def step(engine: Any, real: Step, work: Sequence[Work], signals: Any) -> StepBatch:
        _zero_kv(engine, work[0][0])
        return real(engine, work, signals)

    _run(step, *arguments)


def shifted_position(*arguments: Any) -> None:
    """A token is computed as if it stood one position earlier."""

    def step(engine: Any, real: Step, work: Sequence[Work], signals: Any) -> StepBatch:
        visit = work[0][0]
        if visit.computed < 4:
            return real(engine, work, signals)
        visit.computed -= 1
        try:
            return real(engine, [(visit, 1), *work[1:]], signals)
        finally:
            visit.computed += 1

    _run(step, *arguments)


def repeated_token(*arguments: Any) -> None:
    """The first visit is given the token it was fed, once more."""

    def step(engine: Any, real: Step, work: Sequence[Work], signals: Any) -> StepBatch:
        batch = real(engine, work, signals)
        visit: Visit = work[0][0]
        return StepBatch([visit.tokens[-1], *batch.tokens[1:]], batch.signals)

    _run(step, *arguments)


def follower_zeroed_kv(*arguments: Any) -> None:
    """As `zeroed_kv`, in the part of the KV that another rank than the first holds."""
    _follow(_zero_kv, *arguments)


def follower_wrong_token(*arguments: Any) -> None:
    """Another rank than the first feeds a token that is not the one of rank 0."""

    def corrupt(engine: Any, visit: Visit) -> None:
        visit.tokens[visit.computed] ^= 1

    _follow(corrupt, *arguments)


def _zero_kv(engine: Any, visit: Visit) -> None:
    scheduler = engine.scheduler
    if visit.computed > 4:
        slot = scheduler.req_to_token_pool.req_to_token[visit.handle.row, visit.computed - 2]
        for layer in range(scheduler.model_config.num_hidden_layers):
            for buffer in scheduler.token_to_kv_pool_allocator.get_kvcache().get_kv_buffer(layer):
                buffer[slot] = 0.0


def _follow(
    corrupt: Callable[[Any, Visit], None],
    config: Config,
    ports: Ports,
    index: int,
    rank: int,
    cores: Sequence[int],
    link: ChildLink,
) -> None:
    from tokenrouter.subserver.sglang_compat.engine import SGLangEngine

    real = SGLangEngine.replay
    steps = 0

    def replay(engine: Any, work: Sequence[Work], checked: Sequence[int] = ()) -> None:
        nonlocal steps
        steps += 1
        if steps % EVERY == 0:
            corrupt(engine, work[0][0])
        real(engine, work, checked)

    SGLangEngine.replay = replay  # type: ignore[method-assign]
    run_follower(config, ports, index, rank, cores, link)


def forgotten_penalty(*arguments: Any) -> None:
    """Penalties of member 0 miss every second token."""
    from tokenrouter.subserver.sglang_compat.penalties import Penalties

    real, calls = Penalties._count, 0

    def count(self: Penalties, tokens: Sequence[int], change: int) -> None:
        nonlocal calls
        calls += change > 0
        real(self, tokens[calls % 2 :] if change > 0 else tokens, change)

    if arguments[2] == 0:
        Penalties._count = count  # type: ignore[method-assign]
    run_member(*arguments)


def no_residual(*arguments: Any) -> None:
    """What replaces a draft is drawn from the large model's law itself."""
    from tokenrouter.subserver.sglang_compat import acceptance

    acceptance.residual = lambda mixture, target, proposed: target.clone()
    run_member(*arguments)


def _run(
    corrupt: Callable[[Any, Step, Sequence[Work], Any], StepBatch],
    config: Config,
    ports: Ports,
    index: int,
    cores: Sequence[int],
    link: ChildLink,
) -> None:
    from tokenrouter.subserver.sglang_compat.engine import SGLangEngine

    real: Step = SGLangEngine.step
    steps = 0

    def step(engine: Any, work: Sequence[Work], signals: Any, meanwhile: Meanwhile) -> StepBatch:
        nonlocal steps
        steps += 1
        meanwhile()
        if steps % EVERY:
            return real(engine, work, signals)
        return corrupt(engine, real, work, signals)

    if index == 0:
        SGLangEngine.step = step  # type: ignore[method-assign]
    run_member(config, ports, index, cores, link)
