"""Configurations of the demo pair and of the Llama trio, and how to ask them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.integration.models import DEMO
from tests.integration.server import Server
from tests.subserver.algorithms import HERE

TAU = 0.2
"""Entropy, in nats, at which the demo's large model writes a good part of the tokens."""
GREEDY = {"temperature": 0}
DRAFTY: dict[str, Any] = {"algorithm": f"{HERE}:Drafty", "algorithm_args": {"limit": 40}}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "drafty": DRAFTY,
    "speculative": {"algorithm_args": {"draft_length": 3}},
}
"""Presets of the demo server."""


def demo(
    algorithm: str, tau: float | None, thresholds: Sequence[int], **options: Any
) -> dict[str, Any]:
    """A configuration of the demo pair; ``model`` options go to both members."""
    options.setdefault("max_wait_ms", 60_000)  # a stall shows instead of ending
    model = {"dtype": "float32", "max_total_tokens": 20000, **options.pop("model", {})}
    models = [
        {"name": name, "model_path": str(DEMO / name), "threshold": threshold, **model}
        for name, threshold in zip(("small", "large"), thresholds, strict=True)
    ]
    return {"algorithm": algorithm, "router_threshold": tau, "models": models, **options}


def cascade(trio: dict[str, Path], thresholds: Sequence[int], **options: Any) -> dict[str, Any]:
    """A configuration of the Llama trio under `cascade`."""
    config = demo("cascade", 0.3, (1, 1), **options)
    model = {k: v for k, v in config["models"][0].items() if k not in ("name", "model_path")}
    config["models"] = [
        {**model, "name": name, "model_path": str(path), "threshold": threshold}
        for (name, path), threshold in zip(trio.items(), thresholds, strict=True)
    ]
    return config


def serve_all(
    server: Server,
    prompts: Sequence[Sequence[int]],
    count: int,
    *,
    model: str | None = None,
    **sampling: Any,
) -> list[Any]:
    """Every prompt at once; the answers in order. ``model``: a name, for another algorithm."""
    name = {} if model is None else {"model": model}

    def ask(prompt: Sequence[int]) -> Any:
        return server.generate(
            **name,
            input_ids=list(prompt),
            sampling_params={"ignore_eos": True, **GREEDY, "max_new_tokens": count, **sampling},
            routing={"token_models": True},
        )

    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(ask, prompts))
