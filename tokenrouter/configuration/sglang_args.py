"""Which SGLang server arguments a model entry may carry, found without importing SGLang.

The names and types are read from the source of the installed ``ServerArgs``: importing it
would load torch into processes that must start at once.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from tokenrouter.configuration import sglang_choices, sglang_source

_PARALLEL = "a member is one copy of its model on one machine"
_SPECULATIVE = "a member writes one token a step; write drafts as a routing algorithm"
_MEMORY = "TokenRouter's memory policy counts KV token by token, on the device"
_LOOP = "TokenRouter's own loop decides what runs in a batch"
REFUSED = {
    "host": "set the top-level host",
    "port": "set the top-level port",
    "nccl_port": "set ports: {NAME: {nccl: PORT}}",
    "served_model_name": "set the top-level served_name",
    "log_level": "set the top-level log_level",
    "random_seed": "set the top-level seed",
    "api_key": "it belongs to the whole server, not to a model",
    "skip_tokenizer_init": "requests are routed by token ids and answered as text",
    "is_embedding": "only models that generate text can be routed",
    "enable_multimodal": "only text is routed",
    "enable_custom_logit_processor": "it would run code sent by clients",
    "enable_lora": "adapters are not routed",
    "lora_paths": "adapters are not routed",
    "page_size": _MEMORY,
    "enable_hierarchical_cache": _MEMORY,
    "enable_memory_saver": _MEMORY,
    "disable_hybrid_swa_memory": _MEMORY,
    "disable_overlap_schedule": "it is always on",
    "enable_mixed_chunk": _LOOP,
    "enable_two_batch_overlap": _LOOP,
    "max_queued_requests": _LOOP,
    "num_continuous_decode_steps": _LOOP,
    "schedule_policy": _LOOP,
    "stream_interval": _LOOP,
    "stream_output": _LOOP,
    "dp_size": _PARALLEL,
    "load_balance_method": _PARALLEL,
    "enable_dp_attention": _PARALLEL,
    "enable_dp_lm_head": _PARALLEL,
    "pp_size": _PARALLEL,
    "max_micro_batch_size": _PARALLEL,
    "nnodes": _PARALLEL,
    "node_rank": _PARALLEL,
    "dist_init_addr": _PARALLEL,
    "disaggregation_mode": _PARALLEL,
    "speculative_algorithm": _SPECULATIVE,
    "speculative_draft_model_path": _SPECULATIVE,
    "speculative_num_steps": _SPECULATIVE,
    "speculative_eagle_topk": _SPECULATIVE,
    "speculative_num_draft_tokens": _SPECULATIVE,
    "speculative_accept_threshold_single": _SPECULATIVE,
    "speculative_accept_threshold_acc": _SPECULATIVE,
    "speculative_token_map": _SPECULATIVE,
}
"""Arguments that TokenRouter owns or that cannot work in a routed deployment, and why."""

LONGEST_NAME = 200
"""Characters of a name that could be a misspelt one."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
}


def check(arguments: Mapping[str, Any], own: Iterable[str]) -> None:
    """Refuse any of ``arguments`` that a model entry cannot carry to SGLang.

    Args:
        arguments: what the entry has besides TokenRouter's own fields.
        own: names of those fields, for a better guess at a misspelt one.

    Raises:
        Wrong: unknown or refused names, or values of the wrong type or not among SGLang's choices.
    """
    types = argument_types() if arguments else {}
    known = [*own, *(each for each in types if each not in REFUSED)]
    problems = []
    for name, value in arguments.items():
        if name in REFUSED:
            problems.append(f"{name}: not taken for a model; {REFUSED[name]}")
        elif name not in types:
            problems.append(f"{name}: unknown field{nearest(name, known)}")
        elif complaint := _complaint(value, types[name]) or sglang_choices.complaint(name, value):
            problems.append(f"{name}: {complaint}")
    if problems:
        raise Wrong(*problems)


class Wrong(ValueError):
    """Several problems of one value, for a validator, which can raise but once."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean '...'?`` for the known name closest to ``name``, if any is close."""
    near = closest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` is probably meant to be."""
    if len(name) > LONGEST_NAME:  # comparing takes a second for each 10 MB
        return None
    return next(iter(difflib.get_close_matches(name.lower(), list(known), n=1)), None)


@lru_cache(maxsize=1)
def argument_types() -> Mapping[str, str]:
    """Field name to type, as written in SGLang's ``ServerArgs``.

    Raises:
        ValueError: SGLang is not installed, or its source is not as expected.
    """
    source, statements = sglang_source.parse("server_args.py")
    for node in statements:
        if isinstance(node, ast.ClassDef) and node.name == "ServerArgs":
            return {
                field.target.id: ast.unparse(field.annotation)
                for field in node.body
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            }
    raise ValueError(f"{source} defines no ServerArgs; TokenRouter needs sglang 0.5.1")


def is_text(name: str) -> bool:
    """Whether SGLang takes argument ``name`` as a string."""
    return argument_types().get(name) in ("str", "Optional[str]")


def _complaint(value: Any, annotation: str) -> str | None:
    optional = annotation.startswith("Optional[")
    types = _TYPES.get(annotation.removeprefix("Optional[").removesuffix("]"))
    if types is None or (optional and value is None):
        return None
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        return f"SGLang wants {annotation}, got {value!r}"
    return None
