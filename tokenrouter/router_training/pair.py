"""A model of the pair: its folder, what tells it from others, and how it is loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tokenrouter.calibration.prompts import CHAT, Prompt
from tokenrouter.errors import ConfigError

SAMPLE_BYTES = 1 << 20
"""Of the beginning and of the end of each file of weights: enough to tell weights apart."""


@dataclass(frozen=True)
class Placement:
    """Where models compute (a torch device), and in which precision: a torch name, or ``auto``."""

    device: str = "cpu"
    dtype: str = "auto"


def identity(folder: Path) -> str:
    """A hash of a model's configuration and of samples of its weights and their sizes.

    Raises:
        ConfigError: it is no folder of a model.
    """
    found = hashlib.sha256()
    weights = sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
    try:
        found.update((folder / "config.json").read_bytes())
        for path in weights:
            found.update(f"{path.name} {path.stat().st_size}".encode())
            with path.open("rb") as file:
                found.update(file.read(SAMPLE_BYTES))
                file.seek(max(0, path.stat().st_size - SAMPLE_BYTES))
                found.update(file.read(SAMPLE_BYTES))
    except OSError as error:
        raise ConfigError(f"{folder}: is no model's folder: {error}") from error
    if not weights:
        raise ConfigError(f"{folder}: is no model's folder: it has no weights (*.safetensors)")
    return found.hexdigest()


@contextmanager
def loaded(folder: Path, placement: Placement) -> Iterator[Any]:
    """The model, ready to compute; its memory is free again afterwards.

    Raises:
        ConfigError: it cannot be loaded.
    """
    dtype = placement.dtype if placement.dtype == "auto" else getattr(torch, placement.dtype, None)
    if not (dtype == "auto" or isinstance(dtype, torch.dtype)):
        raise ConfigError(f"--dtype: {placement.dtype} is no precision, such as bfloat16")
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=dtype)
        model = model.to(placement.device).eval()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{folder}: cannot be loaded on {placement.device}: {error}") from error
    try:
        with torch.inference_mode():
            yield model
    finally:
        del model
        if placement.device.startswith("cuda"):
            torch.cuda.empty_cache()


def tokenizer_of(small: Path, large: Path) -> Any:
    """The tokenizer of both.

    Raises:
        ConfigError: it cannot be loaded, or their vocabularies differ.
    """
    try:
        both = [AutoTokenizer.from_pretrained(folder) for folder in (small, large)]
    except (OSError, ValueError) as error:
        raise ConfigError(f"--small, --large: no tokenizer can be loaded: {error}") from error
    if both[0].get_vocab() != both[1].get_vocab():
        raise ConfigError(
            f"--small, --large: {small} and {large} have different vocabularies; a router needs a "
            "pair that shares one"
        )
    return both[1]


def prompt_ids(tokenizer: Any, prompts: Sequence[Prompt], template: dict[str, Any]) -> list[Any]:
    """The token ids of each prompt; ``template`` are arguments of the chat template.

    Raises:
        ConfigError: there is a chat and no template, or the template refuses one.
    """
    try:
        return [_ids(tokenizer, prompt, template) for prompt in prompts]
    except Exception as error:
        raise ConfigError(
            f"--prompts: the model's chat template cannot write one of them: {error}; "
            'a line {"prompt": "..."} needs no template'
        ) from error


def _ids(tokenizer: Any, prompt: Prompt, template: dict[str, Any]) -> list[int]:
    if prompt.endpoint == CHAT:
        messages = prompt.content["messages"]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, **template)
    else:
        ids = tokenizer(prompt.content["prompt"])["input_ids"]
    return list(ids)


def padding_of(tokenizer: Any) -> int:
    """A token to fill up batches with; it is masked, so any will do."""
    return int(tokenizer.pad_token_id or 0)


def digest(content: Any) -> str:
    """A hash of what JSON can say."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
