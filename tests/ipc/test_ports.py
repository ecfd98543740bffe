"""One place that says where everybody listens."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.ipc.ports import choose_ports, renewed

DIRECTORY = Path("/run/routes")
NAMES = ("small", "medium", "large")


def test_every_process_has_its_own_addresses() -> None:
    ports = choose_ports(DIRECTORY, NAMES, {})
    everything = [ports.tokenizer, ports.detokenizer, str(ports.supervisor)]
    for member in ports.members:
        everything += astuple(member)
    assert len(set(everything)) == 3 + 3 * len(NAMES)
    assert ports.members[1].peer == "ipc:///run/routes/medium.peer.sock"
    assert ports.supervisor == DIRECTORY / "supervisor.sock"
    assert all(0 < member.nccl < 65536 for member in ports.members)


def test_any_port_can_be_fixed() -> None:
    fixed = {
        "large": {"nccl": 41234, "input": "tcp://127.0.0.1:5555"},
        "small": {"peer": "ipc:///elsewhere"},
    }
    ports = choose_ports(DIRECTORY, NAMES, fixed)
    assert ports.members[2].nccl == 41234
    assert ports.members[2].input == "tcp://127.0.0.1:5555"
    assert ports.members[2].peer == "ipc:///run/routes/large.peer.sock"
    assert ports.members[0].peer == "ipc:///elsewhere"


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"huge": {"nccl": 1}}, "ports: unknown model 'huge'; models are small, medium, large"),
        ({"small": {"http": 1}}, "ports.small: unknown port 'http'; ports are input, nccl, peer"),
        ({"small": {"nccl": "x"}}, "ports.small.nccl: must be a TCP port number, got 'x'"),
        ({"small": {"nccl": 0}}, "ports.small.nccl: must be a TCP port number"),
        ({"small": {"nccl": 65536}}, "ports.small.nccl: must be a TCP port number"),
        ({"small": {"input": "/a/path"}}, "ports.small.input: must be a ZeroMQ endpoint"),
        ({"small": {"peer": 5555}}, "ports.small.peer: must be a ZeroMQ endpoint"),
    ],
)
def test_what_cannot_be_an_address_is_refused(
    fixed: dict[str, dict[str, Any]], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        choose_ports(DIRECTORY, NAMES, fixed)
    assert message in str(error.value)


def test_another_start_gets_another_tcp_port_unless_it_is_fixed() -> None:
    ports = choose_ports(Path("/x"), ["a", "b"], {})
    again = renewed(ports, 1, {})
    assert again.members[0] == ports.members[0]
    assert again.members[1].nccl != ports.members[1].nccl
    assert again.members[1].peer == ports.members[1].peer
    assert renewed(ports, 1, {"nccl": ports.members[1].nccl}) == ports
