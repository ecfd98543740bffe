"""What is being served, in one block of log lines, once the first start is over.

Called by the supervisor. As JSON, each line is an object with the same facts as keys.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenrouter.config import Config, ModelConfig
from tokenrouter.configuration.parallel import devices
from tokenrouter.ipc.supervision import MemberReady, Roster
from tokenrouter.processes.logs import pairs
from tokenrouter.processes.protocol import Launch


@dataclass(slots=True)
class Phases:
    """How long the parts of a start took, in seconds: of each process, from its fork to ready."""

    begun: float = field(default_factory=time.monotonic)
    imports: float = 0.0
    loads: dict[str, float] = field(default_factory=dict)
    _forked: float | None = None

    def imported(self, seconds: float) -> None:
        """The zygote has imported what the processes share, in so many seconds, and forks."""
        self.imports = seconds
        self._forked = time.monotonic()

    def ready(self, name: str) -> None:
        """A process is ready."""
        start = self.begun if self._forked is None else self._forked
        self.loads[name] = time.monotonic() - start


Line = tuple[str, Mapping[str, Any]]
"""A text, and what it says as fields."""


def summary(
    config: Config,
    roster: Roster,
    launch: Launch,
    url: str,
    phases: Phases,
    pids: Mapping[str, int],
) -> Iterator[Line]:
    """The route, each member, the limits, the process ids, and how long everything took."""
    text, shown = _fields(f"serving {config.served_name!r} at {url}:", _route(config))
    yield text, {"url": url, "served_name": config.served_name, **shown}
    for name, preset in config.algorithms.items():
        settings = preset.model_dump()
        settings["algorithm_args"] = settings["algorithm_args"] or None
        text, shown = _fields(f"algorithm {name!r}:", settings)
        yield text, {"preset": {"name": name, **shown}}
    cores: dict[int | None, list[int]] = {}
    for child in launch.children:
        cores.setdefault(child.member, []).extend(child.cores)
    for index, (model, ready) in enumerate(zip(config.models, roster.members, strict=True)):
        facts = _member(model, ready, cores[index], on_gpu=not launch.shared)
        text, shown = _fields(f"member {model.name!r}:", facts)
        yield text, {"member": {"name": model.name, **shown}}
    text, shown = _fields("limits:", _limits(config, roster))
    yield text, {"limits": shown}
    text, shown = _fields("processes:", {"supervisor": os.getpid(), **pids})
    yield text, {"processes": shown}
    yield _took(phases)


def _fields(head: str, facts: Mapping[str, Any]) -> Line:
    shown = {name: value for name, value in facts.items() if value is not None}
    return head + pairs(shown), shown


def _route(config: Config) -> dict[str, Any]:
    return {
        "algorithm": config.algorithm,
        "router_threshold": config.router_threshold,
        "algorithm_args": dict(config.algorithm_args) or None,
        "prefill": config.prefill,
    }


def _member(
    model: ModelConfig, ready: MemberReady, cores: list[int], on_gpu: bool
) -> dict[str, Any]:
    sglang = model.engine == "sglang"
    return {
        "engine": model.engine,
        "model_path": str(model.model_path) if model.model_path else None,
        "dtype": (model.dtype or "auto") if sglang else None,
        "tp_size": model.tp_size if sglang else None,
        "cores": cores or None,
        "gpus": list(devices(model)) if sglang and on_gpu else None,
        "mem_fraction_static": model.sglang.get("mem_fraction_static") if on_gpu else None,
        "threshold": model.threshold,
        "max_batch": model.max_batch,
        "pool_tokens": ready.pool_tokens,
        "max_visits": ready.max_visits,
        "context_length": ready.context_length,
    }


def _limits(config: Config, roster: Roster) -> dict[str, Any]:
    return {
        "context_length": min(member.context_length for member in roster.members),
        "pool_tokens": roster.pool_tokens,
        "max_visits": roster.max_visits,
        "max_requests": config.max_requests,
        "max_body_bytes": config.max_body_bytes,
        "max_body_values": config.max_body_values,
        "api_key": "required" if config.api_key else "none",
        "on_failure": config.on_failure,
    }


def _took(phases: Phases) -> Line:
    total = time.monotonic() - phases.begun
    parts = {"imports": phases.imports, **phases.loads}
    shown = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items())
    fields = {name: round(seconds, 3) for name, seconds in parts.items()}
    return f"ready in {total:.1f} s: {shown}", {"ready_s": round(total, 3), "phases_s": fields}
