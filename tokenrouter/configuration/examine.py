"""What a configuration meets on a machine: for `tokenrouter check`, before anything starts.

`config.read` has found what is wrong with the configuration itself; this looks at devices,
memory and ports. Sizes are estimates (`memory.py`).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tokenrouter.configuration import parallel
from tokenrouter.configuration.machine import Machine
from tokenrouter.configuration.member_plan import MemberPlan, plan
from tokenrouter.configuration.model_folder import read_settings, unusable
from tokenrouter.configuration.preflight import (
    check_port,
    check_rank_port,
    check_socket_paths,
)
from tokenrouter.configuration.shares import shares
from tokenrouter.configuration.validation import collecting
from tokenrouter.errors import ConfigError
from tokenrouter.processes.directory import PREFIX, check_directory
from tokenrouter.schedulers.signals import OfNetworks

if TYPE_CHECKING:
    from tokenrouter.config import Config

GIB = 1024**3


@dataclass(slots=True)
class Examination:
    """What there is to say; ``problems`` make it impossible to serve.

    ``shares``: ``mem_fraction_static`` of members that get one because nobody gave it.
    """

    members: list[MemberPlan] = field(default_factory=list)
    shares: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def examine(config: Config, machine: Machine) -> Examination:
    """Compare a configuration with a machine."""
    found = Examination()
    for model in config.models:
        if model.model_path and (
            unusable(model.model_path) or not (model.model_path / "config.json").is_file()
        ):
            continue  # no model: `config.read` has said so
        with collecting(found.problems):
            member = plan(model, machine)
            found.members.append(member)
            if member.gpus:
                parallel.check_devices(model, len(machine.gpus))
            elif model.sglang.get("base_gpu_id"):
                found.warnings.append(
                    f"models.{model.name}.base_gpu_id: there is no GPU, so it runs on the CPU"
                )
    _check_networks(config, found)
    found.shares = shares(found.members, machine)
    models = {model.name: model for model in config.models}
    found.members = [
        plan(models[each.name], machine, found.shares.get(each.name)) for each in found.members
    ]
    _check_lengths(found)
    for gpu, size in enumerate(machine.gpus):
        _check_gpu(gpu, size, found)
    _check_ram(machine.ram, found)
    _check_addresses(config, found)
    return found


def _check_addresses(config: Config, found: Examination) -> None:
    with collecting(found.problems):
        check_port(config.host, config.port)
    for name, ports in config.ports.items():
        port = ports.get("nccl")
        if name in config.names and isinstance(port, int) and 0 < port < 65536:
            with collecting(found.problems):
                check_rank_port(name, port)
    with collecting(found.problems):
        if config.socket_dir is None:
            check_socket_paths(Path(tempfile.gettempdir(), f"{PREFIX}........"), config.names)
        else:
            check_directory(config.socket_dir)


def _check_networks(config: Config, found: Examination) -> None:
    """Whether trained networks are there, and made for the models that they are to judge."""
    for index, model in enumerate(config.models):
        try:
            declared = config.declared(index)
            path = model.model_path
            settings = {} if path is None else read_settings(path)
        except ConfigError:
            continue  # `config.read` has said so
        settings = settings.get("text_config", settings)
        sizes = settings.get("hidden_size"), settings.get("vocab_size")
        for signal in declared:
            if isinstance(signal, OfNetworks) and path is not None and None not in sizes:
                from tokenrouter.routers import small_model  # torch takes seconds

                with collecting(found.problems):
                    small_model.load(signal, *sizes)


def longest_request(members: list[MemberPlan]) -> tuple[int, str]:
    """Tokens that a routed request may have, and what bounds them."""
    member = min(members, key=lambda each: each.longest)
    what = "context length" if member.longest == member.context_length else "KV pool"
    return member.longest, f"the {what} of {member.name}"


def gib(size: int) -> str:
    """Bytes for people."""
    return f"{size / GIB:.1f} GiB" if size >= GIB / 10 else f"{size / 1024**2:.1f} MiB"


def _check_lengths(found: Examination) -> None:
    lengths = {member.name: member.context_length for member in found.members}
    if len(set(lengths.values())) > 1:
        smallest, what = longest_request(found.members)
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        found.warnings.append(
            f"models: context lengths differ ({listed}); a routed request may have {smallest} "
            f"tokens, {what}"
        )
    for member in found.members:
        if member.gpus and member.pool_tokens == 0:
            continue  # not even its weights fit: said below
        if member.threshold == "auto" or member.pool_tokens is None:
            continue
        if member.threshold > member.pool_tokens:
            found.problems.append(
                f"models.{member.name}.threshold: {member.threshold} visits can never wait here: "
                f"its KV pool holds {member.pool_tokens} tokens; lower it"
            )


def _check_gpu(gpu: int, size: int | None, found: Examination) -> None:
    """Whether what shares a GPU fits."""
    members = [member for member in found.members if gpu in member.gpus]
    fractions = sum(member.fraction or 0.0 for member in members)
    names = ", ".join(member.name for member in members)
    if fractions > 1:
        each = " + ".join(f"{member.fraction:g}" for member in members if member.fraction)
        found.problems.append(
            f"models: mem_fraction_static of {names} on GPU {gpu} sum to {fractions:g} ({each}); "
            "lower them to 1 together, less what activations need"
        )
    if len(members) > 1:
        found.problems.extend(
            f"models.{member.name}.mem_fraction_static: {names} share GPU {gpu}; say how much of "
            "it this one may take (or give max_total_tokens)"
            for member in members
            if member.fraction is None and member.pool_tokens is None
        )
    if size is None:
        if members:
            found.warnings.append(f"models: the memory of GPU {gpu} is not known, nor if all fit")
        return
    for member in members:
        share = int(size * (1.0 if member.fraction is None else member.fraction))
        if member.needs > share:
            found.problems.append(
                f"models.{member.name}: needs about {gib(member.needs)} on GPU {gpu} (weights "
                f"{gib(member.weights)}, KV cache {gib(member.needs - member.weights)}) of the "
                f"{gib(share)} it may take; raise mem_fraction_static or tp_size, or lower "
                "max_total_tokens"
            )
    needs = sum(member.needs for member in members)
    if needs > size and fractions <= 1:
        found.problems.append(
            f"models: {names} need about {gib(needs)} on GPU {gpu}, which has {gib(size)}; spread "
            "them with base_gpu_id or tp_size, or lower max_total_tokens"
        )


def _check_ram(ram: int, found: Examination) -> None:
    members = [member for member in found.members if not member.gpus]
    needs = sum(member.needs * member.tp_size for member in members)
    if needs > ram:
        names = ", ".join(member.name for member in members)
        found.problems.append(
            f"models: {names} need about {gib(needs)}, and the machine has {gib(ram)}; lower "
            "max_total_tokens, or choose smaller models"
        )
