"""Files of tensors, read without executing anything that they hold."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from tokenrouter.errors import ConfigError

FIELD = "algorithm_args.router"
"""What errors name unless told otherwise."""


def read_pickled(path: Path, field: str = FIELD) -> dict[Any, Any]:
    """The dictionary in a torch file, on the CPU; nothing but tensors and plain values.

    Raises:
        ConfigError: no such file, not torch's, not a dictionary, or a pickle that would run code.
    """
    try:
        with path.open("rb") as file:
            archive = zipfile.is_zipfile(file)
    except OSError as error:
        raise unreadable(field, path, error.strerror or str(error)) from error
    if not archive:
        raise unreadable(field, path, "it is not a file of torch.save")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"{field}: {path} holds more than tensors and plain values, and is not loaded, as that "
            f"could run code ({reason}); save its state_dict and settings alone"
        ) from error
    except Exception as error:  # a changed byte may lead anywhere in torch and in zipfile
        reason = f"{type(error).__name__}: {error}"
        raise unreadable(field, path, f"it is damaged: {reason}") from error
    if not isinstance(content, dict):
        raise unreadable(field, path, f"it holds a {type(content).__name__}, not a dictionary")
    return content


def read_safetensors(
    path: Path, field: str = FIELD
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors of a safetensors file, on the CPU, and its metadata.

    Raises:
        ConfigError: it is none.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except OSError as error:
        raise unreadable(field, path, error.strerror or str(error)) from error
    except SafetensorError as error:
        raise unreadable(field, path, f"it is not a safetensors file: {error}") from error


def unreadable(field: str, path: Path, reason: str) -> ConfigError:
    """That ``path`` is not what it should be."""
    return ConfigError(f"{field}: cannot read {path}: {reason}; give the file of a trained router")


def fill(
    network: nn.Module, tensors: Mapping[str, torch.Tensor], path: Path, field: str = FIELD
) -> None:
    """Give ``network`` the tensors of its names, in float32, and set it to evaluation mode.

    Raises:
        ConfigError: some are missing, too many, of another shape, or no finite numbers.
    """
    wanted = network.state_dict()
    counters = {name: torch.tensor(0) for name in wanted if name.endswith("num_batches_tracked")}
    given = {**tensors, **counters}
    problems = [f"{name} is missing" for name in wanted if name not in given]
    problems += [f"{name} has no place in it" for name in given if name not in wanted]
    problems += [
        f"{name} is {_shape(given[name])}, not {_shape(tensor)}"
        for name, tensor in wanted.items()
        if name in given and _shape(given[name]) != _shape(tensor)
    ]
    if not problems:
        problems = [f"{name} holds no finite numbers" for name in wanted if not _fits(given[name])]
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise ConfigError(
            f"{field}: {path} does not hold the network that it describes: "
            f"{'; '.join(problems[:3])}{more}; save it again, or give another file"
        )
    state = {name: given[name].to(torch.float32).contiguous() for name in wanted}
    network.load_state_dict(state, assign=True)
    network.requires_grad_(False).eval()


def _fits(tensor: torch.Tensor) -> bool:
    """Whether it is an array of finite numbers: neither sparse nor quantised, say."""
    plain = tensor.layout is torch.strided and not (
        tensor.is_quantized or tensor.is_meta or tensor.is_complex()
    )
    return plain and bool(tensor.to(torch.float32).isfinite().all())


def _shape(tensor: Any) -> Any:
    return list(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
