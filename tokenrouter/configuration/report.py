"""How `tokenrouter check` tells what would be served: to people, or to programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from tokenrouter.config import UNIX_HOST, Config
from tokenrouter.configuration.examine import Examination, gib, longest_request
from tokenrouter.configuration.machine import Machine
from tokenrouter.configuration.member_plan import MemberPlan
from tokenrouter.configuration.presets import Preset

FILE_WIDTH = 160
"""Columns of a table that is no terminal's."""
_WHAT = "for weights and KV caches (an estimate)"


def as_json(config: Config | None, found: Examination) -> str:
    """Whether it can be served (``ok``), why not, and what it would be."""
    content = {
        "ok": not found.problems,
        "problems": found.problems,
        "warnings": found.warnings,
        "config": None if config is None else config.public(),
        "members": [{**asdict(member), "kv_bytes": member.kv_bytes} for member in found.members],
        "shares": found.shares,
    }
    return json.dumps(_plain(content), indent=2)


def _plain(value: Any) -> Any:
    """``value`` as JSON can say it, whatever YAML has put into it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


def show(config: Config, machine: Machine, found: Examination) -> None:
    """Print what would be served, and the warnings."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = FILE_WIDTH
    routed = f"model {config.served_name!r}: {_routing(config)}, {config.prefill} prefill"
    console.print(routed, markup=False)
    for name, preset in config.algorithms.items():
        console.print(f"model '{config.served_name}:{name}': {_routing(preset)}", markup=False)
    where = "in the private socket directory" if config.host == UNIX_HOST else _address(config)
    key = "" if config.api_key is None else ", with an API key"
    console.print(f"HTTP {where}{key}; at most {config.max_requests} requests at once")
    tokens, what = longest_request(found.members)
    console.print(f"a routed request may have {tokens} tokens: {what}")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("member", "engine", "device", "threshold", "batch", "context"):
        table.add_column(column, no_wrap=True)
    for column in ("weights", "KV tokens", "KV"):
        table.add_column(column, justify="right", no_wrap=True)
    for member in found.members:
        table.add_row(*_row(member))
    console.print(table)
    for gpu, size in enumerate(machine.gpus):
        needs = sum(member.needs for member in found.members if gpu in member.gpus)
        console.print(f"GPU {gpu}: about {gib(needs)} of {gib(size) if size else '?'}, {_WHAT}")
    if found.shares:
        given = ", ".join(f"{name} {share:g}" for name, share in found.shares.items())
        console.print(f"mem_fraction_static, where nobody says it (for equal KV tokens): {given}")
    needs = sum(each.needs * each.tp_size for each in found.members if not each.gpus)
    if needs:
        console.print(f"RAM: about {gib(needs)} of {gib(machine.ram)}, {_WHAT}")
    for warning in found.warnings:
        console.print(f"warning: {warning}", style="yellow")


def _routing(of: Config | Preset) -> str:
    threshold = "" if of.router_threshold is None else f" at {of.router_threshold:g}"
    arguments = json.dumps(_plain(of.algorithm_args), ensure_ascii=False)
    return f"algorithm {of.algorithm}{threshold}" + (f", {arguments}" if of.algorithm_args else "")


def _row(member: MemberPlan) -> list[str]:
    device = f"GPU {','.join(map(str, member.gpus))}" if member.gpus else "CPU"
    ranks = f" x{member.tp_size}" if member.tp_size > 1 and not member.gpus else ""
    timed = member.engine == "timed"
    return [
        member.name,
        "timed" if timed else f"sglang {member.precision}",
        "none" if timed else device + ranks,
        str(member.threshold),
        str(member.max_batch),
        str(member.context_length),
        "-" if timed else gib(member.weights * member.tp_size),
        "when loaded" if member.pool_tokens is None else str(member.pool_tokens),
        gib(member.kv_bytes * member.tp_size) if member.kv_bytes else "-",
    ]


def _address(config: Config) -> str:
    return f"at {config.host}:{config.port or '(a free port)'}"
