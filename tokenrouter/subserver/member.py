"""What a member is made of: its engine and what the rest of the deployment must know of it.

Used by `process.py`. SGLang is imported only where a member needs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenrouter.config import Config, ModelConfig
from tokenrouter.configuration.model import TIMED_CONTEXT_LENGTH, TIMED_POOL_TOKENS
from tokenrouter.ipc.member_state import StepSums
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.supervision import MemberReady
from tokenrouter.schedulers.base import Vocabulary
from tokenrouter.subserver.engine import Engine
from tokenrouter.subserver.profile import BUDGET_S, profile, profile_of_law
from tokenrouter.subserver.ranks import RankedEngine
from tokenrouter.subserver.timed import TimedEngine, step_law

if TYPE_CHECKING:
    from tokenrouter.subserver.sglang_compat.engine import SGLangEngine

TIMED_VISITS = 4096


@dataclass(frozen=True, slots=True)
class Member:
    """One loaded model.

    ``profile``: how long steps take, if the planner will ask. ``ranked``: the engine again,
    if it is rank 0 of several.
    """

    engine: Engine
    vocabulary: Vocabulary
    ready: MemberReady
    profile: Mapping[int, StepSums]
    ranked: RankedEngine | None = None


def load_member(config: Config, ports: Ports, index: int, cores: Sequence[int]) -> Member:
    """Load member ``index`` with the engine its configuration names; may take minutes.

    Raises:
        ConfigError: its weights or arguments cannot be served.
    """
    model = config.models[index]
    if model.engine == "timed":
        return _timed(config, model, index)
    return _sglang(config, ports, index, cores)


def load_rank(
    config: Config, ports: Ports, index: int, cores: Sequence[int], rank: int
) -> SGLangEngine:
    """The engine of tensor-parallel rank ``rank`` of member ``index``.

    Raises:
        ConfigError: its weights or arguments cannot be served.
    """
    from tokenrouter.subserver.sglang_compat.loading import build_engine

    return build_engine(
        config.models[index],
        ports.members[index],
        cores,
        config.seed + index,
        rank,
        config.declared(index),
    )


def _sglang(config: Config, ports: Ports, index: int, cores: Sequence[int]) -> Member:
    engine = load_rank(config, ports, index, cores, 0)
    # All members write parts of one answer, and the front end reads it as its model's.
    front = next(model for model in config.models if model.tokenizer_path is not None)
    engine.use_reasoning_parser(front.sglang.get("reasoning_parser"))
    ready = MemberReady(
        member=index,
        pool_tokens=engine.pool_tokens,
        max_visits=engine.max_visits,
        context_length=engine.context_length,
        vocab_size=engine.vocab_size,
        eos_ids=engine.eos_ids,
        tokenizer=engine.tokenizer_fingerprint,
    )
    model = config.models[index]
    alone = model.tp_size == 1
    measured: Mapping[int, StepSums] = {}
    if config.planned:
        budget_s = BUDGET_S if alone else math.inf
        measured = profile(engine, model.max_batch, lambda work: engine.step(work, ()), budget_s)
    return Member(engine, engine.vocabulary, ready, measured, None if alone else engine)


def _timed(config: Config, model: ModelConfig, index: int) -> Member:
    from tokenrouter.subserver.sglang_compat.serving import front_end_args, load_tokenizer
    from tokenrouter.subserver.sglang_compat.vocabulary import (
        TokenizerVocabulary,
        fingerprint,
        printable_ids,
    )

    tokenizer = load_tokenizer(front_end_args(config))
    step_ms = model.step_ms
    pool_tokens = model.max_total_tokens or TIMED_POOL_TOKENS
    law = step_law(step_ms if step_ms is not None else 0.0)
    engine = TimedEngine(
        law,
        printable_ids(tokenizer),
        pool_tokens,
        TIMED_VISITS,
        seed=config.seed + index,
    )
    ready = MemberReady(
        member=index,
        pool_tokens=pool_tokens,
        max_visits=TIMED_VISITS,
        context_length=model.context_length or TIMED_CONTEXT_LENGTH,
        vocab_size=len(tokenizer),
        eos_ids=() if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,),
        tokenizer=fingerprint(tokenizer),
    )
    measured = profile_of_law(law, model.max_batch) if config.planned else {}
    return Member(engine, TokenizerVocabulary(tokenizer), ready, measured)
