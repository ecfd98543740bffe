"""Where every process of a deployment listens: chosen once, here, for all members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from tokenrouter.configuration.sglang_args import nearest
from tokenrouter.errors import ConfigError
from tokenrouter.ipc.free_ports import free_ports


@dataclass(frozen=True, slots=True)
class MemberPorts:
    """One member's addresses: ZeroMQ endpoints, except ``nccl``, a TCP port number.

    ``input`` takes requests from the front end, ``peer`` frames from other members;
    ``nccl`` is where the ranks of SGLang's worker meet.
    """

    input: str
    peer: str
    nccl: int


@dataclass(frozen=True, slots=True)
class Ports:
    """The multi-model port argument: everything shared, and one `MemberPorts` a member."""

    directory: Path
    tokenizer: str
    detokenizer: str
    planner: str
    members: tuple[MemberPorts, ...]

    @property
    def supervisor(self) -> Path:
        """The UNIX socket of the supervisor."""
        return self.directory / "supervisor.sock"

    def rank(self, member: int, rank: int) -> str:
        """Where tensor-parallel rank ``rank`` (from 1 on) of a member hears of rank 0."""
        return _ipc(self.directory, f"rank-{member}-{rank}")

    @property
    def http(self) -> Path:
        """The UNIX socket of the HTTP server, if it does not listen on a network."""
        return self.directory / "http.sock"


def choose_ports(
    directory: Path,
    names: Sequence[str],
    fixed: Mapping[str, Mapping[str, str | int]],
    http_port: int = 0,
) -> Ports:
    """Addresses for members ``names`` under ``directory``; ``fixed[name][port]`` wins.

    ``http_port``: where the HTTP server is going to listen.

    Raises:
        ConfigError: ``fixed`` names an unknown member or port, or a bad value.
        StartupError: no TCP port is free.
    """
    unknown = sorted(set(fixed) - set(names))
    if unknown:
        hint = nearest(unknown[0], names)
        raise ConfigError(
            f"ports: unknown model {unknown[0]!r}{hint}; models are {', '.join(names)}"
        )
    given = {name: each["nccl"] for name, each in fixed.items() if "nccl" in each}
    free = free_ports(len(names) - len(given), {http_port, *given.values()})
    members = []
    for name in names:
        chosen = MemberPorts(
            input=_ipc(directory, f"{name}.input"),
            peer=_ipc(directory, f"{name}.peer"),
            nccl=0 if name in given else free.pop(),
        )
        members.append(_fix(name, chosen, fixed.get(name, {})))
    return Ports(
        directory=directory,
        tokenizer=_ipc(directory, "tokenizer"),
        detokenizer=_ipc(directory, "detokenizer"),
        planner=_ipc(directory, "planner"),
        members=tuple(members),
    )


def renewed(ports: Ports, member: int, fixed: Mapping[str, str | int], http_port: int = 0) -> Ports:
    """The ports for another start of ``member``: the TCP port of its ranks may be gone by now.

    ``fixed``: what the user has chosen for it. ``http_port``: as in `choose_ports`.

    Raises:
        StartupError: no TCP port is free.
    """
    if "nccl" in fixed:
        return ports
    members = list(ports.members)
    taken = {http_port, *(each.nccl for each in members)}
    members[member] = replace(members[member], nccl=free_ports(1, taken)[0])
    return replace(ports, members=tuple(members))


def _fix(name: str, ports: MemberPorts, fixed: Mapping[str, str | int]) -> MemberPorts:
    values = asdict(ports)
    for key, value in fixed.items():
        if key not in values:
            raise ConfigError(
                f"ports.{name}: unknown port {key!r}{nearest(key, values)}; ports are "
                f"{', '.join(sorted(values))}"
            )
        if key == "nccl" and not (isinstance(value, int) and 0 < value < 65536):
            raise ConfigError(f"ports.{name}.nccl: must be a TCP port number, got {value!r}")
        if key != "nccl" and not (isinstance(value, str) and "://" in value):
            raise ConfigError(
                f"ports.{name}.{key}: must be a ZeroMQ endpoint such as ipc:///path, got {value!r}"
            )
        values[key] = value
    return msgspec.convert(values, MemberPorts)


def _ipc(directory: Path, name: str) -> str:
    return f"ipc://{directory / name}.sock"
