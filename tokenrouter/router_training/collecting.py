"""Text for a router to learn from: what the large model answers, and what the small one would.

Three stages, so that one model is in memory at a time. Each goes through the prompts in shards, and
a shard is a file of the store. Positions are those of answers, their end included: at each, both
models have read the prompt and the large model's answer so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from transformers import GenerationConfig

from tokenrouter.errors import ConfigError
from tokenrouter.router_training.pair import Placement, loaded
from tokenrouter.router_training.store import Arrays, Store

TOP_LOGITS = 100
"""Of the small model, sorted; what the network of R2R reads."""


@dataclass(frozen=True)
class Answers:
    """Token ids of prompts, and of the answers to them."""

    prompts: list[list[int]]
    answers: list[list[int]]


@dataclass(frozen=True)
class Shards:
    """The prompts, in groups of ``size``; ``bars`` show how many are done."""

    store: Store
    prompts: Sequence[Sequence[int]]
    size: int
    bars: Progress

    def __len__(self) -> int:
        return -(-len(self.prompts) // self.size)

    def missing(self, stage: str) -> Iterator[int]:
        """The shards that a stage has not written yet, with a progress bar."""
        task = self.bars.add_task(stage, total=len(self))
        for shard in range(len(self)):
            if not self.store.has(file_of(stage, shard)):
                yield shard
            self.bars.advance(task)
        self.bars.remove_task(task)

    def is_complete(self, stage: str) -> bool:
        """Whether a stage has nothing left to do."""
        return all(self.store.has(file_of(stage, shard)) for shard in range(len(self)))

    def answers(self, shard: int) -> Answers:
        """What the first stage found."""
        arrays = self.store.arrays(file_of("answers", shard))
        tokens = arrays["tokens"].split(arrays["lengths"].tolist())
        prompts = self.prompts[shard * self.size : (shard + 1) * self.size]
        return Answers([list(ids) for ids in prompts], [each.tolist() for each in tokens])


def file_of(stage: str, shard: int) -> str:
    """The name of a shard's file in the store."""
    return f"{stage}/{shard:05d}.safetensors"


def collect_answers(
    shards: Shards, large: Path, placement: Placement, padding: int, max_tokens: int
) -> None:
    """The large model's greedy answers, in batches of a shard.

    Raises:
        ConfigError: a prompt is too long for the model.
    """
    if shards.is_complete("answers"):
        return
    with loaded(large, placement) as model:
        _check_lengths(shards.prompts, model, max_tokens)
        for shard in shards.missing("answers"):
            prompts = shards.prompts[shard * shards.size : (shard + 1) * shards.size]
            _write_answers(shards, shard, generate(model, prompts, padding, max_tokens))


def take_answers(shards: Shards, answers: Sequence[Sequence[int]]) -> None:
    """Answers that are known, instead of generated ones; one for each prompt."""
    for shard in shards.missing("answers"):
        _write_answers(shards, shard, answers[shard * shards.size : (shard + 1) * shards.size])


def _write_answers(shards: Shards, shard: int, answers: Sequence[Sequence[int]]) -> None:
    flat = [token for answer in answers for token in answer]
    arrays = {
        "tokens": torch.tensor(flat, dtype=torch.int32),
        "lengths": torch.tensor([len(answer) for answer in answers]),
    }
    shards.store.write_arrays(file_of("answers", shard), arrays)


def _check_lengths(prompts: Sequence[Sequence[int]], model: Any, max_tokens: int) -> None:
    limit = getattr(model.config, "max_position_embeddings", None)
    longest = max(range(len(prompts)), key=lambda index: len(prompts[index]))
    if limit is not None and len(prompts[longest]) + max_tokens > limit:
        raise ConfigError(
            f"--max-tokens: prompt {longest + 1} has {len(prompts[longest])} tokens, and with "
            f"{max_tokens} more exceeds the {limit} of the large model; lower it, or drop that one"
        )


def generate(
    model: Any, prompts: Sequence[Sequence[int]], padding: int, max_tokens: int
) -> list[list[int]]:
    """Greedy continuations, each to the first end token (kept) or ``max_tokens``."""
    ends = end_tokens(model)
    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), padding)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    config = GenerationConfig(
        do_sample=False, max_new_tokens=max_tokens, eos_token_id=ends, pad_token_id=padding
    )
    output = model.generate(
        input_ids=ids.to(model.device),
        attention_mask=mask.to(model.device),
        generation_config=config,
    )
    return [_to_the_end(row, set(ends)) for row in output[:, width:].tolist()]


def end_tokens(model: Any) -> list[int]:
    """The tokens that end an answer, of which a model's configuration names one, many or none."""
    ends = model.generation_config.eos_token_id
    if ends is None:
        ends = model.config.eos_token_id
    return [ends] if isinstance(ends, int) else list(ends or [])


def _to_the_end(tokens: list[int], ends: set[int]) -> list[int]:
    length = next((at + 1 for at, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[:length]


def collect_features(shards: Shards, small: Path, placement: Placement) -> None:
    """What the small model would write at every position, and what a router sees of it."""
    if shards.is_complete("features"):
        return
    with loaded(small, placement) as model:
        for shard in shards.missing("features"):
            read = shards.answers(shard)
            found = [
                features(model, prompt, answer)
                for prompt, answer in zip(read.prompts, read.answers, strict=True)
            ]
            arrays = {name: torch.cat([each[name] for each in found]) for name in found[0]}
            shards.store.write_arrays(file_of("features", shard), arrays)


def features(model: Any, prompt: list[int], answer: list[int]) -> Arrays:
    """Of one answer: greedy tokens [n], top logits [n, 100], last hidden states [n, h]."""
    at = torch.arange(len(prompt) - 1, len(prompt) + len(answer) - 1)
    ids = torch.tensor([prompt + answer], device=model.device)
    output = model(
        input_ids=ids,
        use_cache=False,
        output_hidden_states=True,
        logits_to_keep=at.to(model.device),
    )
    logits = output.logits[0]
    return {
        "token": logits.argmax(-1).int().cpu(),
        "logits": logits.topk(min(TOP_LOGITS, logits.shape[-1])).values.cpu(),
        "hidden": output.hidden_states[-1][0, at.to(model.device)].cpu(),
    }


def collect_probabilities(shards: Shards, large: Path, placement: Placement) -> None:
    """The large model's probability of the small one's token wherever it wrote another."""
    if shards.is_complete("probabilities"):
        return
    with loaded(large, placement) as model:
        for shard in shards.missing("probabilities"):
            read = shards.answers(shard)
            tokens = shards.store.arrays(file_of("features", shard))["token"]
            parts = tokens.split([len(answer) for answer in read.answers])
            found = [
                probabilities(model, prompt, answer, part)
                for prompt, answer, part in zip(read.prompts, read.answers, parts, strict=True)
            ]
            name = file_of("probabilities", shard)
            shards.store.write_arrays(name, {"probability": torch.cat(found)})


def probabilities(
    model: Any, prompt: list[int], answer: list[int], tokens: torch.Tensor
) -> torch.Tensor:
    """The model's probabilities of ``tokens`` [n] in the places of the answer's own; 1 if equal."""
    found = torch.ones(len(answer))
    differing = (tokens != torch.tensor(answer)).nonzero()[:, 0]
    if len(differing) == 0:
        return found
    logits = model(
        input_ids=torch.tensor([prompt + answer], device=model.device),
        use_cache=False,
        logits_to_keep=(differing + len(prompt) - 1).to(model.device),
    ).logits[0]
    every = logits.float().softmax(-1).cpu()
    known = tokens[differing] < every.shape[-1]
    picked = tokens[differing].long().clamp(max=every.shape[-1] - 1)
    found[differing] = torch.where(known, every.gather(1, picked[:, None])[:, 0], 0.0)
    return found
