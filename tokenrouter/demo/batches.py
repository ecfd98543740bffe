"""Training batches: conversations as token ids, and which of those ids the loss counts.

Most conversations are one problem and its answer. Some begin with a system message and some hold
two problems, so that the models answer those as well as a bare question. Batches are a function of
(seed, step) alone, which makes a resumed training equal to an unbroken one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch

from tokenrouter.demo.task import Problem, problems
from tokenrouter.demo.tokenizer import END_ID, PAD_ID, SPECIAL_TOKENS

SYSTEM_ID, USER_ID, ASSISTANT_ID = (
    PAD_ID + SPECIAL_TOKENS.index(f"<|{role}|>") for role in ("system", "user", "assistant")
)
SYSTEM_MESSAGES = (
    "You are a helpful assistant.",
    "Solve the problem step by step.",
    "You are a patient teacher. Show your work.",
)
POOL_BATCHES = 16


@dataclass(frozen=True)
class Conversation:
    """Token ids of a whole conversation and, for each, whether an assistant wrote it."""

    ids: list[int]
    answered: list[bool]


@dataclass(frozen=True)
class Batch:
    """Ids to feed and ids to predict, both [conversations, length]; where the loss counts."""

    inputs: torch.Tensor
    targets: torch.Tensor
    counted: torch.Tensor


def encode(turns: list[Problem], system: str | None = None) -> Conversation:
    """The ids the chat template gives for these turns; `<|end|>` is part of each answer."""
    ids: list[int] = []
    answered: list[bool] = []

    def append(new_ids: list[int], by_assistant: bool) -> None:
        ids.extend(new_ids)
        answered.extend([by_assistant] * len(new_ids))

    if system is not None:
        append([SYSTEM_ID, *system.encode(), END_ID], False)
    for turn in turns:
        append([USER_ID, *turn.question.encode(), END_ID, ASSISTANT_ID], False)
        append([*turn.answer.encode(), END_ID], True)
    return Conversation(ids, answered)


def collate(conversations: list[Conversation]) -> Batch:
    """Pad on the right; a causal model needs no mask for that, and padding is never counted."""
    width = max(len(conversation.ids) for conversation in conversations)
    ids = torch.full((len(conversations), width), PAD_ID)
    answered = torch.zeros((len(conversations), width), dtype=torch.bool)
    for row, conversation in enumerate(conversations):
        ids[row, : len(conversation.ids)] = torch.tensor(conversation.ids)
        answered[row, : len(conversation.ids)] = torch.tensor(conversation.answered)
    return Batch(ids[:, :-1], ids[:, 1:], answered[:, 1:])


def draw_conversation(rng: random.Random, source: Iterator[Problem]) -> Conversation:
    """One conversation: one time in eight with a system message, in sixteen with two problems."""
    system = rng.choice(SYSTEM_MESSAGES) if rng.random() < 1 / 8 else None
    return encode(list(islice(source, 2 if rng.random() < 1 / 16 else 1)), system)


def training_batches(seed: int, batch_size: int, first_step: int = 0) -> Iterator[Batch]:
    """An endless stream of batches from `first_step` on.

    Conversations are drawn in pools of some batches and sorted by length within a pool, so that
    little is spent on padding; the batches of a pool come in random order.
    """
    pool, skip = divmod(first_step, POOL_BATCHES)
    while True:
        rng = random.Random(f"{seed}/{pool}")
        source = problems("train", f"{seed}/{pool}")
        drawn = [draw_conversation(rng, source) for _ in range(POOL_BATCHES * batch_size)]
        drawn.sort(key=lambda conversation: len(conversation.ids))
        starts = list(range(0, len(drawn), batch_size))
        rng.shuffle(starts)
        for start in starts[skip:]:
            yield collate(drawn[start : start + batch_size])
        pool, skip = pool + 1, 0
