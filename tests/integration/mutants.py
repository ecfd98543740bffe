"""Member programs that compute something slightly wrong: exactness tests must notice.

Each wraps the engine's step on member 0 and corrupts a few of its steps, so often that answers
are sure to change: a trained model writes the same after many a token whose KV is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tokenrouter.config import Config
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.supervision import ChildLink
from tokenrouter.subserver.engine import Meanwhile, StepBatch, Work
from tokenrouter.subserver.follower import run_follower
from tokenrouter.subserver.process import run_member

Step = Callable[..., StepBatch]
EVERY = 3
"""Steps from one corruption to the next."""


def zeroed_kv(*arguments: Any) -> None:
    """Key and value of one token of each visit become zero."""

    def step(engine: Any, real: Step, work: Sequence[Work], signals: Any) -> StepBatch:
        _zero_kv(engine, work)
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
    """Each visit is given the token it was fed, once more."""

    def step(engine: Any, real: Step, work: Sequence[Work], signals: Any) -> StepBatch:
        batch = real(engine, work, signals)
        return StepBatch([visit.tokens[-1] for visit, _ in work], batch.signals)

    _run(step, *arguments)


def follower_zeroed_kv(*arguments: Any) -> None:
    """As `zeroed_kv`, in the part of the KV that another rank than the first holds."""
    _follow(_zero_kv, *arguments)


def follower_wrong_token(*arguments: Any) -> None:
    """Another rank than the first feeds a token that is not the one of rank 0."""

    def corrupt(engine: Any, work: Sequence[Work]) -> None:
        visit = work[0][0]
        visit.tokens[visit.computed] ^= 1

    _follow(corrupt, *arguments)


def _zero_kv(engine: Any, work: Sequence[Work]) -> None:
    scheduler = engine.scheduler
    rows = scheduler.req_to_token_pool.req_to_token
    slots = [rows[visit.handle.row, visit.computed - 2] for visit, _ in work if visit.computed > 4]
    for layer in range(scheduler.model_config.num_hidden_layers):
        for buffer in scheduler.token_to_kv_pool_allocator.get_kvcache().get_kv_buffer(layer):
            for slot in slots:
                buffer[slot] = 0.0


def _follow(
    corrupt: Callable[[Any, Sequence[Work]], None],
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
            corrupt(engine, work)
        real(engine, work, checked)

    SGLangEngine.replay = replay  # type: ignore[method-assign]
    run_follower(config, ports, index, rank, cores, link)


def forgotten_penalty(*arguments: Any) -> None:
    """Penalties of member 0 miss two tokens of three."""
    from tokenrouter.subserver.sglang_compat.penalties import Penalties

    real, calls = Penalties._count, 0

    def count(self: Penalties, tokens: Sequence[int], change: int) -> None:
        nonlocal calls
        calls += change > 0
        real(self, tokens[bool(calls % 3) :] if change > 0 else tokens, change)

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
