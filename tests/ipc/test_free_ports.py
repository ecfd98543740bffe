"""Ports that nobody takes by accident between their choice and their use."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

from tokenrouter.configuration.preflight import check_port
from tokenrouter.errors import StartupError
from tokenrouter.ipc import free_ports as module
from tokenrouter.ipc.free_ports import OURS, free_ports


@pytest.fixture(params=["32768\t60999\n", "1024 29000", "29999 65535", "nonsense", None])
def hands_out_ours(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> bool:
    file = tmp_path / "range"
    if request.param is not None:
        file.write_text(request.param)
    monkeypatch.setattr(module, "KERNEL_PORTS", file)
    return request.param != "32768\t60999\n"


def test_they_can_be_listened_on_and_are_none_that_the_kernel_hands_out(
    hands_out_ours: bool,
) -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()
    assert all(port in OURS for port in ports) or hands_out_ours


def test_what_is_taken_is_not_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "range").write_text("40000 50000")
    monkeypatch.setattr(module, "KERNEL_PORTS", tmp_path / "range")
    [taken, free] = free_ports(2)
    monkeypatch.setattr(module.random.SystemRandom, "sample", lambda *args: [taken, free])
    with socket.create_server(("127.0.0.1", taken)):
        assert free_ports(1) == [free]
        with pytest.raises(StartupError, match="no TCP port is free"):
            free_ports(2)


def test_what_somebody_will_use_is_not_chosen(hands_out_ours: bool) -> None:
    even = range(0, 2**16, 2)
    assert all(port not in even for port in free_ports(20, even))


def test_ports_that_are_taken_cost_no_descriptors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "range").write_text("40000 50000")
    monkeypatch.setattr(module, "KERNEL_PORTS", tmp_path / "range")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(module.random.SystemRandom, "sample", lambda *args: [port] * 1000)
        now = taken.fileno() + 1
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (now + 100, limits[1]))
        try:
            with pytest.raises(StartupError, match="no TCP port is free"):
                free_ports(1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_free_port_of_the_server_is_one_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "range").write_text("40000 50000")
    monkeypatch.setattr(module, "KERNEL_PORTS", tmp_path / "range")
    assert check_port("127.0.0.1", 0) in OURS
