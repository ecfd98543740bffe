"""One place that says where everybody listens."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from tokenrouter.errors import ConfigError, StartupError
from tokenrouter.ipc import free_ports
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
        ({"small": {"nccl": 1}, "huge": {"nccl": 1}}, "ports: unknown model 'huge'"),
    ],
)
def test_what_cannot_be_an_address_is_refused(
    fixed: dict[str, dict[str, Any]], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        choose_ports(DIRECTORY, NAMES, fixed)
    assert message in str(error.value)


def test_a_port_that_is_not_chosen_need_not_be_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_ports, "OURS", range(0))
    monkeypatch.setattr(free_ports, "_TRIES", 0)
    fixed = {name: {"nccl": 41234 + index} for index, name in enumerate(NAMES)}
    ports = choose_ports(DIRECTORY, NAMES, fixed)
    assert [member.nccl for member in ports.members] == [41234, 41235, 41236]
    with pytest.raises(StartupError, match="no TCP port is free"):
        choose_ports(DIRECTORY, NAMES, {})


def test_two_never_get_the_same_tcp_port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "range").write_text("40000 50000")
    monkeypatch.setattr(free_ports, "KERNEL_PORTS", tmp_path / "range")
    server, fixed, *others = free_ports.free_ports(5)
    monkeypatch.setattr(
        free_ports.random.SystemRandom, "sample", lambda *args: [server, fixed, *others]
    )
    ports = choose_ports(DIRECTORY, NAMES, {"large": {"nccl": fixed}}, server)
    assert {member.nccl for member in ports.members} == {fixed, *others[:2]}
    assert renewed(ports, 0, {}, server).members[0].nccl == others[2]


def test_another_start_gets_another_tcp_port_unless_it_is_fixed() -> None:
    ports = choose_ports(Path("/x"), ["a", "b"], {})
    again = renewed(ports, 1, {})
    assert again.members[0] == ports.members[0]
    assert again.members[1].nccl != ports.members[1].nccl
    assert again.members[1].peer == ports.members[1].peer
    assert renewed(ports, 1, {"nccl": ports.members[1].nccl}) == ports
