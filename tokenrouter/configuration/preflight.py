"""What can be checked of a configuration without starting anything."""

from __future__ import annotations

import os
import socket
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenrouter.configuration import model_folder, parallel, presets, templates, vocabulary
from tokenrouter.configuration.deployment import UNIX_HOST
from tokenrouter.configuration.validation import collecting
from tokenrouter.errors import ConfigError
from tokenrouter.ipc.free_ports import free_ports
from tokenrouter.ipc.ports import choose_ports
from tokenrouter.schedulers import registry
from tokenrouter.schedulers.signals import DeferralProbability

if TYPE_CHECKING:
    from tokenrouter.config import Config

MAX_SOCKET_PATH = 107
"""Bytes of a UNIX socket's path (108 with its final zero)."""


def check(config: Config, problems: list[str]) -> list[str]:
    """Look at everything that neither binds the HTTP port nor loads a model.

    Args:
        problems: what makes it impossible to serve is appended here.

    Returns:
        Warnings.
    """
    with collecting(problems):
        presets.check_algorithm(config.own, config.names)
    with collecting(problems):
        presets.check(config.algorithms, config.names)
    known = len(problems)
    for model in config.models:
        with collecting(problems):
            model_folder.check(model)
            parallel.check(model)
        with collecting(problems):
            templates.check(model)
    if len(problems) == known:
        with collecting(problems):
            vocabulary.check(config.models, _deferring(config))
    with collecting(problems):
        _check_ports(config)
    if config.socket_dir is not None:
        with collecting(problems):
            check_socket_paths(config.socket_dir, config.names)
    if problems:
        return []
    return _differing_templates(config) + vocabulary.doubts(config.models, _deferring(config))


def _deferring(config: Config) -> list[str]:
    """Members whose last id is no token."""
    try:
        asked = [config.declared(index) for index in range(len(config.models))]
    except ConfigError:  # of an algorithm, which has been told
        return []
    deferral = DeferralProbability()
    return [name for name, each in zip(config.names, asked, strict=True) if deferral in each]


def check_parts(settings: Mapping[Any, Any], problems: list[str]) -> None:
    """Of settings that make no configuration, look at the parts that can be judged alone."""
    algorithm = settings.get("algorithm")
    if isinstance(algorithm, str):
        with collecting(problems):
            registry.find(algorithm)
    entries = settings.get("models")
    for index, entry in enumerate(entries if isinstance(entries, list | tuple) else ()):
        if isinstance(entry, Mapping) and isinstance(path := entry.get("model_path"), Path):
            with collecting(problems):
                model_folder.check_folder(
                    f"models.{entry.get('name', index)}.model_path",
                    path,
                    random_weights=entry.get("load_format") == "dummy",
                )


def check_port(host: str, port: int) -> int:
    """Make sure that the HTTP server can listen; its port (0 has become a free one).

    Raises:
        ConfigError: the address is taken, not allowed, or not of this machine.
        StartupError: no port is free.
    """
    if host == UNIX_HOST:
        return port
    port = port or free_ports(1)[0]
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, ValueError) as error:  # ValueError: not even the form of a name
        why = error.strerror if isinstance(error, OSError) else "no host can be called so"
        raise ConfigError(f"host: {host!r} is not an address: {why}") from error
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
            return int(probe.getsockname()[1])
        except OSError as error:
            raise ConfigError(
                f"port: cannot listen on {host}:{port}: {error.strerror}; stop what uses it, or "
                "choose another with --port (0: any free one)"
            ) from error


def check_recording(folder: Path) -> None:
    """Make sure that routing decisions can be recorded in ``folder``, which is made.

    Raises:
        ConfigError: nothing can be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(4096))
    except OSError as error:
        raise ConfigError(
            f"record_decisions: cannot write to {folder}: {error.strerror}; choose another folder"
        ) from error


def check_rank_port(name: str, port: int) -> None:
    """Make sure that the ranks of member ``name`` can meet at TCP port ``port``.

    Raises:
        ConfigError: it is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise ConfigError(
                f"ports.{name}.nccl: cannot listen on TCP port {port}: {error.strerror}; stop what "
                "uses it, or choose another"
            ) from error


def check_socket_paths(directory: Path, names: tuple[str, ...]) -> None:
    """Make sure that the longest socket path fits.

    Raises:
        ConfigError: it does not.
    """
    longest = max((f"{name}.input.sock" for name in (*names, "supervisor")), key=len)
    length = len(os.fsencode(directory / longest))
    if length > MAX_SOCKET_PATH:
        raise ConfigError(
            f"socket_dir: {directory / longest} has {length} bytes, and a UNIX socket's path "
            f"{MAX_SOCKET_PATH} at most; set a shorter --socket-dir"
        )


def _check_ports(config: Config) -> None:
    choose_ports(Path("/"), config.names, config.ports)
    fixed = Counter(address for ports in config.ports.values() for address in ports.values())
    if config.host != UNIX_HOST:
        fixed[config.port] += 1
    address, count = max(fixed.items(), key=lambda item: item[1], default=("", 0))
    if count > 1:
        raise ConfigError(f"ports: {address} is given to {count} ports; every port needs its own")


def _differing_templates(config: Config) -> list[str]:
    """Prompts are written with the first template."""
    templates = {
        model.name: model_folder.chat_template(model.tokenizer_path)
        for model in config.models
        if model.tokenizer_path is not None
    }
    first = next(iter(templates), "")
    others = [name for name, template in templates.items() if template != templates[first]]
    if not others:
        return []
    return [
        f"models: the chat template of {', '.join(others)} differs from that of {first}, "
        "which is used for all"
    ]
