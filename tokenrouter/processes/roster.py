"""What the members report when they are ready, and whether it fits together."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from tokenrouter.config import Config
from tokenrouter.errors import StartupError
from tokenrouter.ipc.messages import DETOKENIZER, FRONT_END, PLANNER
from tokenrouter.ipc.supervision import MemberReady, Roster

GENERATION_BITS = 62
"""A member's generation starts at random: no frame of an earlier deployment, nor one made up
by somebody who has not been told, can pass for its own."""


def build(
    config: Config,
    ready: Mapping[int, MemberReady],
    pids: Mapping[int, tuple[int, ...]],
) -> Roster:
    """The roster of a deployment whose members are all ready; ``pids``: of every process.

    Raises:
        StartupError: as `check`.
    """
    members = tuple(ready[index] for index in range(len(config.models)))
    generations = tuple(secrets.randbits(GENERATION_BITS) for _ in members)
    names = (FRONT_END, DETOKENIZER, *((PLANNER,) if config.planned else ()))
    others = {each: secrets.randbits(GENERATION_BITS) for each in names}
    return check(config, Roster(members, generations, others, pids=dict(pids)))


def check(config: Config, roster: Roster) -> Roster:
    """The same roster, if its members fit together.

    Raises:
        StartupError: members disagree about tokens, or cannot hold what they must.
    """
    known = [member for member in roster.members if member.tokenizer]
    for member in known[1:]:
        if member.tokenizer != known[0].tokenizer:
            first, other = config.names[known[0].member], config.names[member.member]
            raise StartupError(
                f"models: {first} and {other} loaded different vocabularies; route between "
                "models that share one"
            )
    for name, threshold, member in zip(
        config.names, config.first_thresholds, roster.members, strict=True
    ):
        if threshold > min(member.max_visits, member.pool_tokens):
            raise StartupError(
                f"models.{name}.threshold: {threshold} visits can never wait here: "
                f"it holds {member.max_visits} visits and {member.pool_tokens} tokens; lower it"
            )
    return roster
