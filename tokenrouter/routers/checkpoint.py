"""Files of R2R routers: the official ``.pt`` layout, and our own in safetensors.

Official: a dictionary with ``model_type``, ``init_args``, ``common_args`` (threshold,
input_type), ``model_specific_args`` and ``state_dict``, without the small model's embedding
(or with it: it is ignored). Ours: the same tensors, and in the metadata of the safetensors file,
under ``tokenrouter_router``, a JSON object: the architecture, the threshold, the small model; as
a file, or a folder that holds it as ``router.safetensors``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import save as serialised

from tokenrouter.errors import ConfigError
from tokenrouter.routers.r2r import LOGITS, MODEL_TYPES, TOKEN, Architecture, RouterNetwork
from tokenrouter.routers.tensors import FIELD, fill, read_pickled, read_safetensors, unreadable

HEADER = "tokenrouter_router"
FILE_NAME = "router.safetensors"
DEFAULT_THRESHOLD = 0.5
"""Of checkpoints that name none, as on the official server."""
_EMBEDDING = "token_embeddings.weight"


@dataclass(frozen=True, slots=True)
class Router:
    """A trained router: its network, in float32 and evaluation mode when loaded.

    ``threshold``: at this probability of being critical, and above, the large model writes.
    ``small_model``: the name or folder of the model whose states it was trained on.
    """

    network: RouterNetwork
    threshold: float
    small_model: str = ""

    @property
    def architecture(self) -> Architecture:
        """The network's."""
        return self.network.architecture

    @property
    def input_type(self) -> tuple[str, ...]:
        """What the network sees."""
        return self.architecture.inputs


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    architecture: Architecture
    threshold: float
    small_model: str = ""
    version: int = 1


def load(path: Path | str, field: str = FIELD) -> Router:
    """The router in a file of either format, or in a folder of ours; on the CPU.

    Raises:
        ConfigError: it is none; ``field`` names the setting to change.
    """
    path = Path(path)
    if path.is_dir():
        path = path / FILE_NAME
    if path.suffix == ".safetensors":
        return _load_own(path, field)
    return _load_official(path, field)


def save(path: Path | str, router: Router) -> None:
    """Write our format: to ``path`` if it ends in ``.safetensors``, else into that folder."""
    path = Path(path)
    if path.suffix != ".safetensors":
        path.mkdir(parents=True, exist_ok=True)
        path = path / FILE_NAME
    header = _Header(router.architecture, router.threshold, router.small_model)
    metadata = {HEADER: msgspec.json.encode(header).decode()}
    path.write_bytes(serialised(_state(router), metadata))


def save_official(path: Path | str, router: Router) -> None:
    """Write the layout that R2R's own programs load."""
    shape = router.architecture
    torch.save(
        {
            "model_type": shape.model_type,
            "init_args": _init_args(shape, router.small_model),
            "common_args": {"threshold": router.threshold, "input_type": list(shape.inputs)},
            "model_specific_args": {},
            "state_dict": _state(router),
        },
        path,
    )


def _state(router: Router) -> dict[str, torch.Tensor]:
    return {
        name: tensor.detach().to("cpu", torch.float32).contiguous()
        for name, tensor in router.network.state_dict().items()
    }


def _init_args(shape: Architecture, small_model: str) -> dict[str, Any]:
    """What the constructor of the official class takes."""
    arguments: dict[str, Any] = {
        "hidden_dims": list(shape.widths),
        "expansion_factor": shape.expansion,
        "dropout_rate": shape.dropout,
        "use_position_embedding": False,
        "normalize_input": shape.normalize,
    }
    if shape.inputs != (LOGITS,):
        arguments["hidden_states_size"] = shape.hidden_size
    if LOGITS in shape.inputs:
        arguments["logits_size"] = shape.logits_size
    if TOKEN in shape.inputs:
        arguments |= {"pretrained_model_name": small_model, "freeze_lm_head": True}
    if MODEL_TYPES[shape.model_type].classes:
        arguments |= {"num_classes": shape.outputs, "apply_softmax": shape.ends_in_softmax}
    elif len(shape.inputs) == 1:
        arguments["output_dim"] = shape.outputs
    return arguments


def _load_own(path: Path, field: str) -> Router:
    tensors, metadata = read_safetensors(path, field)
    try:
        header = msgspec.json.decode(metadata[HEADER], type=_Header)
    except KeyError:
        raise unreadable(field, path, f"its metadata have no {HEADER!r}") from None
    except msgspec.DecodeError as error:
        raise unreadable(field, path, f"its {HEADER!r} is wrong: {error}") from error
    if header.version != 1:
        raise unreadable(field, path, f"its format is of version {header.version}, not 1")
    return _filled(header, tensors, path, field)


def _load_official(path: Path, field: str) -> Router:
    content = read_pickled(path, field)
    missing = [key for key in ("model_type", "init_args", "state_dict") if key not in content]
    if missing:
        raise unreadable(field, path, f"it has no {', '.join(missing)}")
    arguments = content["init_args"]
    common = content.get("common_args") or {}
    try:
        tensors = {name: each for name, each in content["state_dict"].items() if name != _EMBEDDING}
        shape = _architecture(content["model_type"], arguments, tensors)
        threshold = common.get("threshold")
        chosen = DEFAULT_THRESHOLD if threshold is None else float(threshold)
        small_model = str(arguments.get("pretrained_model_name") or "")
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise unreadable(field, path, f"its init_args do not fit its tensors: {reason}") from error
    return _filled(_Header(shape, chosen, small_model), tensors, path, field)


def _filled(header: _Header, tensors: Mapping[str, torch.Tensor], path: Path, field: str) -> Router:
    if not 0.0 <= header.threshold <= 1.0:
        raise unreadable(field, path, f"its threshold, {header.threshold}, is no probability")
    network = _network(header.architecture, path, field)
    fill(network, tensors, path, field)
    return Router(network, header.threshold, header.small_model)


def _architecture(
    model_type: str, arguments: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
) -> Architecture:
    """Sizes from the constructor's arguments; those of the small model from the tensors."""
    if model_type not in MODEL_TYPES:
        raise ValueError(
            f"model_type {model_type!r} is not served; served are {', '.join(MODEL_TYPES)}"
        )
    if arguments.get("use_position_embedding"):
        raise ValueError("use_position_embedding is not served: a position has no place in a step")
    kind = MODEL_TYPES[model_type]
    outputs = arguments.get("num_classes", 3) if kind.classes else arguments.get("output_dim", 1)
    return Architecture(
        model_type=model_type,
        hidden_size=_hidden_size(kind.inputs, tensors),
        logits_size=tensors["logits_projection.weight"].shape[1] if LOGITS in kind.inputs else 0,
        widths=tuple(int(width) for width in arguments.get("hidden_dims", (256, 512, 256))),
        expansion=int(arguments.get("expansion_factor", 4)),
        outputs=outputs,
        normalize=bool(arguments.get("normalize_input", False)),
        dropout=float(arguments.get("dropout_rate", 0.3)),
        ends_in_softmax=kind.classes and bool(arguments.get("apply_softmax", True)),
    )


def _hidden_size(inputs: tuple[str, ...], tensors: Mapping[str, torch.Tensor]) -> int:
    """The small model's, as the first layer takes it; 0 if it takes no hidden state."""
    if inputs == (LOGITS,):
        return 0
    if len(inputs) == 1:
        return int(tensors["hidden_states_projection.weight"].shape[1])
    return int(tensors["combined_projection.weight"].shape[1]) // len(inputs)


def _network(shape: Architecture, path: Path, field: str) -> RouterNetwork:
    """Without memory: its tensors are to be assigned."""
    known = shape.model_type in MODEL_TYPES and shape.outputs in (1, 3)
    if not known or not shape.widths or min(shape.widths) < 1:
        raise unreadable(field, path, f"{asdict(shape)} describes no router")
    try:
        with torch.device("meta"):
            return RouterNetwork(shape)
    except (RuntimeError, ValueError, TypeError) as error:
        raise unreadable(field, path, f"its sizes are impossible: {error}") from error


def check_small_model(
    router: Router, hidden_size: int, vocabulary: int, field: str = FIELD
) -> None:
    """Make sure that ``router`` can be evaluated on a small model.

    Args:
        hidden_size: of the small model.
        vocabulary: token ids that it may write.

    Raises:
        ConfigError: it was trained on another one.
    """
    shape = router.architecture
    trained = f" (it was trained on {router.small_model})" if router.small_model else ""
    if shape.inputs != (LOGITS,) and shape.hidden_size != hidden_size:
        raise ConfigError(
            f"{field}: the router is for a small model of hidden size {shape.hidden_size}{trained},"
            f" and the one configured has {hidden_size}; give the router of this pair"
        )
    if LOGITS in shape.inputs and shape.logits_size > vocabulary:
        raise ConfigError(
            f"{field}: the router sees the {shape.logits_size} largest logits{trained}, and the "
            f"small model has {vocabulary} tokens; give the router of this pair"
        )
