"""A whole run, stage by stage; what an earlier, interrupted one of the same inputs did stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress

from tokenrouter.calibration.prompts import Prompt
from tokenrouter.errors import ConfigError, MeasurementError
from tokenrouter.router_training import plot, report
from tokenrouter.router_training.collecting import (
    Shards,
    collect_answers,
    collect_features,
    collect_probabilities,
    take_answers,
)
from tokenrouter.router_training.fitting import Fit, Recipe, fit
from tokenrouter.router_training.judge import (
    Judge,
    collect_continuations,
    collect_judgements,
    judged,
)
from tokenrouter.router_training.labels import SPLITS, divergences, split_examples
from tokenrouter.router_training.pair import (
    Placement,
    digest,
    identity,
    loaded,
    padding_of,
    prompt_ids,
    tokenizer_of,
)
from tokenrouter.router_training.report import Report
from tokenrouter.router_training.store import Store
from tokenrouter.routers import checkpoint
from tokenrouter.routers.checkpoint import Router


@dataclass(frozen=True)
class Wanted:
    """What a router is trained from, and how.

    ``epsilon``: a token diverges where the large model gives it less than that. ``recall``: of
    divergent tokens to find; ``share``: of tokens that the large model may write, instead.
    ``batch_size``: prompts at once, and in a file. ``template``: arguments of the chat template.
    ``small_name``: of the small model in the router's file. ``answers``: token ids that are taken
    for the large model's, which then generates nothing.
    """

    small: Path
    large: Path
    prompts: Sequence[Prompt]
    out: Path
    max_tokens: int = 1024
    batch_size: int = 32
    epsilon: float = 0.1
    recall: float = 0.95
    share: float | None = None
    recipe: Recipe = field(default_factory=Recipe)
    placement: Placement = field(default_factory=Placement)
    template: dict[str, Any] = field(default_factory=dict)
    judge: Judge | None = None
    small_name: str | None = None
    answers: Sequence[Sequence[int]] | None = None


def train(wanted: Wanted, bars: Progress) -> Report:
    """Go through all stages, and write the router and its report into ``wanted.out``.

    Raises:
        ConfigError: what is wanted is impossible, or the folder is of another run.
        MeasurementError: something failed; what was done so far is kept.
    """
    if len(wanted.prompts) < SPLITS:
        raise ConfigError(
            f"--prompts: {len(wanted.prompts)} of them, and a router needs {SPLITS} at least, "
            "since it is trained, stopped and judged by different ones; hundreds are of use"
        )
    store = Store(wanted.out, _inputs(wanted))
    try:
        return _stages(wanted, store, bars)
    except torch.OutOfMemoryError as error:
        raise MeasurementError(
            f"{wanted.placement.device} has too little memory: {error}; lower --batch-size or "
            "--max-tokens, with another --out"
        ) from error


def _inputs(wanted: Wanted) -> dict[str, Any]:
    """What the arrays in the folder depend on; labels and training are made anew when changed."""
    asked = [[prompt.endpoint, prompt.content] for prompt in wanted.prompts]
    return {
        "small model": identity(wanted.small),
        "large model": identity(wanted.large),
        "prompts": digest(asked),
        "--max-tokens": wanted.max_tokens,
        "--batch-size": wanted.batch_size,
        "--dtype": wanted.placement.dtype,
        "--chat-template-args": wanted.template,
        "answers": None if wanted.answers is None else digest([*map(list, wanted.answers)]),
    }


def _stages(wanted: Wanted, store: Store, bars: Progress) -> Report:
    tokenizer = tokenizer_of(wanted.small, wanted.large)
    prompts = prompt_ids(tokenizer, wanted.prompts, wanted.template)
    shards = Shards(store, prompts, wanted.batch_size, bars)
    place = wanted.placement
    if wanted.answers is None:
        collect_answers(shards, wanted.large, place, padding_of(tokenizer), wanted.max_tokens)
    else:
        take_answers(shards, wanted.answers)
    collect_features(shards, wanted.small, place)
    collect_probabilities(shards, wanted.large, place)
    splits = split_examples(shards, _labels(wanted, shards, tokenizer))
    with loaded(wanted.small, place) as model:
        embedding = model.get_input_embeddings().weight.detach().cpu().clone()
    labelled = [wanted.epsilon, wanted.judge and wanted.judge.model]
    fitted = fit(store, splits, embedding, wanted.recipe, place.device, bars, labelled)
    found = report.assess(fitted, splits, len(prompts), wanted.recall, wanted.share)
    return _write(wanted, store, fitted, found)


def _labels(wanted: Wanted, shards: Shards, tokenizer: Any) -> list[torch.Tensor]:
    """Of every shard."""
    epsilon, judge = wanted.epsilon, wanted.judge
    found = [divergences(shards, shard, epsilon) for shard in range(len(shards))]
    if judge is None:
        return found
    collect_continuations(shards, wanted.large, wanted.placement, tokenizer, epsilon)
    collect_judgements(shards, judge, epsilon)
    return [judged(shards, shard, each, judge, epsilon) for shard, each in enumerate(found)]


def _write(wanted: Wanted, store: Store, fitted: Fit, found: Report) -> Report:
    network = fitted.network.cpu().eval()
    router = Router(network, found.threshold, wanted.small_name or str(wanted.small))
    written = {
        "router.safetensors": lambda path: checkpoint.save(path, router),
        "router.pt": lambda path: checkpoint.save_official(path, router),
        "calibration.png": lambda path: plot.save(path, found),
    }
    for name, write in written.items():
        store.write(name, write)
    files = [str(store.path(name)) for name in (*written, "report.json")]
    found = replace(found, files=tuple(files))
    store.write_text("report.json", report.as_json(found) + "\n")
    return found
