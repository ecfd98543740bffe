"""Start, watch and stop, with fake children: nothing is loaded, everything is forked."""

from __future__ import annotations

import logging
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.processes.fakes import parent_of, programs
from tokenrouter import supervisor
from tokenrouter.config import Config
from tokenrouter.errors import ConfigError, StartupError
from tokenrouter.processes import plan
from tokenrouter.processes.plan import Programs
from tokenrouter.supervisor import serve

pytestmark = pytest.mark.timeout(30)

CHILDREN = ("small", "large", "front-end", "detokenizer", "planner")
MODELS = [
    {"name": "small", "engine": "timed", "step_ms": 1},
    {"name": "large", "engine": "timed", "step_ms": 2, "threshold": 2},
]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Two timed members on any free port, with sockets in a known place."""
    return Config.model_validate({"models": MODELS, "port": 0, "socket_dir": tmp_path / "s"})


def pids(config: Config) -> dict[str, int]:
    """Process ids that the fakes left behind."""
    assert config.socket_dir
    return {name: int((config.socket_dir / f"{name}.pid").read_text()) for name in CHILDREN}


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def stop_self(url: str) -> None:
    """An announcement that ends the deployment."""
    os.kill(os.getpid(), signal.SIGTERM)


def test_serves_until_it_is_asked_to_stop(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    seen: dict[str, int] = {}
    urls: list[str] = []

    def announce(url: str) -> None:
        urls.append(url)
        seen.update(pids(config))
        titles = [Path(f"/proc/{pid}/cmdline").read_text().strip("\0") for pid in seen.values()]
        assert titles == [f"tokenrouter[tokenrouter:{urlsplit(url).port}]::{name}" for name in seen]
        stop_self(url)

    assert serve(config, announce, programs()) == 0
    assert caplog.messages[-1] == "stopped"
    assert urls[0].startswith("http://127.0.0.1:")
    assert not urls[0].endswith(":0")
    assert not any(alive(pid) for pid in seen.values())
    assert not Path(str(config.socket_dir)).exists()
    assert "member 'large': engine=timed threshold=2" in caplog.text
    assert "pool_tokens=1001" in caplog.text
    assert re.search(r"ready in \d+\.\d s: imports \d+\.\d s", caplog.text)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_stop_signals(config: Config, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    assert serve(config, lambda url: os.kill(os.getpid(), number), programs()) == 0
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("without_weights", "large: its weights are missing; download them"),
        ("buggy", "large: ZeroDivisionError: a bug (at "),
        ("killed", "large died (killed by SIGKILL; the machine may be out of memory)"),
        ("odd_vocabulary", "models: small and large loaded different vocabularies"),
        ("tiny", "models.large.threshold: 2 visits can never wait here: it holds 1 visits"),
        ("missing", "has no attribute 'missing'"),
    ],
)
def test_a_member_that_cannot_start_is_the_error(config: Config, member: str, message: str) -> None:
    with pytest.raises(StartupError) as error:
        serve(config, stop_self, programs(member=member))
    assert message in str(error.value)
    assert not Path(str(config.socket_dir)).exists()


def test_a_failed_start_is_told_in_one_line(
    config: Config, capfd: pytest.CaptureFixture[str]
) -> None:
    for level in ("info", "debug"):
        with pytest.raises(StartupError) as error:
            serve(
                config.model_copy(update={"log_level": level}),
                stop_self,
                programs(member="buggy"),
            )
        assert "fakes.py:" in str(error.value)
        assert "\n" not in str(error.value)
        said = capfd.readouterr().err
        assert "large ERROR cannot start: ZeroDivisionError: a bug (at " in said
        assert ("Traceback" in said) is (level == "debug")


@pytest.mark.parametrize("host", ["..", "a" * 70])
def test_a_host_that_cannot_be_is_refused(config: Config, host: str) -> None:
    with pytest.raises(ConfigError, match=r"host: .* is not an address"):
        serve(config.model_copy(update={"host": host}), stop_self, programs())


def test_imports_that_fail_are_the_error(config: Config) -> None:
    with pytest.raises(StartupError, match="ImportError: no module named 'half"):
        serve(config, stop_self, programs(prepare="broken_import"))


def test_a_start_that_never_ends_names_who_is_missing(config: Config) -> None:
    with pytest.raises(StartupError, match=r"takes too long; still waiting for .*front-end"):
        serve(config, stop_self, programs(front_end="slow"), start_limit_s=1.0)


@pytest.mark.parametrize(
    "fakes", [programs(front_end="impatient"), programs(prepare="impatient_imports")]
)
def test_a_stop_while_starting(config: Config, fakes: Programs) -> None:
    announced: list[str] = []
    assert serve(config, announced.append, fakes) == 0
    assert not announced
    assert not Path(str(config.socket_dir)).exists()


@pytest.mark.parametrize("victim", CHILDREN)
def test_a_death_ends_everything_if_it_is_to(
    config: Config, victim: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = config.model_copy(update={"on_failure": "stop"})
    seen: dict[str, int] = {}

    def announce(url: str) -> None:
        seen.update(pids(config))
        os.kill(seen[victim], signal.SIGKILL)

    assert serve(config, announce, programs()) == 1
    assert f"{victim} died (killed by SIGKILL" in caplog.text
    assert not any(alive(pid) for pid in seen.values())


def test_the_death_of_the_zygote_ends_everything(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    seen: dict[str, int] = {}

    def announce(url: str) -> None:
        seen.update(pids(config))
        os.kill(parent_of(seen["small"]), signal.SIGKILL)

    assert serve(config, announce, programs()) == 1
    assert "the zygote died (killed by SIGKILL" in caplog.text
    wait_until_dead(list(seen.values()))


@pytest.mark.parametrize("second_signal", [False, True])
def test_children_that_do_not_end_are_killed(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    second_signal: bool,
) -> None:
    monkeypatch.setattr(supervisor, "STOP_LIMIT_S", 25.0 if second_signal else 0.3)
    caplog.set_level(logging.INFO)
    seen: dict[str, int] = {}
    asked: list[float] = []

    def announce(url: str) -> None:
        seen.update(pids(config))
        stop_self(url)
        if second_signal:
            threading.Timer(0.3, stop_self, [url]).start()
        asked.append(time.monotonic())

    assert serve(config, announce, programs(member="stubborn")) == 0
    assert 0.25 < time.monotonic() - asked[0] < 15
    assert "large, small did not end on SIGTERM" in caplog.text
    wait_until_dead(list(seen.values()))


def started(config: Config, fakes: str = "programs()") -> subprocess.Popen[str]:
    """A supervisor in a process of its own; it prints its URL."""
    script = (
        "import sys; from tokenrouter.config import Config;"
        "from tokenrouter.supervisor import serve; from tests.processes.fakes import programs;"
        "sys.exit(serve(Config.model_validate_json(sys.argv[1]),"
        f" lambda url: print(url, flush=True), {fakes}))"
    )
    command = [sys.executable, "-c", script, config.model_dump_json()]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_nothing_is_left_when_the_supervisor_is_killed(config: Config) -> None:
    with started(config) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("http://")
        seen = [*pids(config).values(), parent_of(pids(config)["small"])]
        assert all(alive(pid) for pid in seen)
        # A process that is stopped must not be left either.
        os.kill(seen[0], signal.SIGSTOP)
        process.kill()
        wait_until_dead(seen)
        wait_until(lambda: not Path(str(config.socket_dir)).exists())


def test_nothing_is_left_when_the_supervisor_is_killed_while_it_starts(config: Config) -> None:
    with started(config, 'programs(prepare="slow_imports")') as process:
        wait_until(lambda: (Path(str(config.socket_dir)) / "importing").exists())
        zygote = int((Path(str(config.socket_dir)) / "importing").read_text())
        process.kill()
        wait_until_dead([zygote])
        wait_until(lambda: not Path(str(config.socket_dir)).exists())


def test_children_of_a_stopped_zygote_end_without_their_supervisor(config: Config) -> None:
    with started(config) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("http://")
        seen = list(pids(config).values())
        zygote = parent_of(seen[0])
        os.kill(zygote, signal.SIGSTOP)
        process.kill()
        wait_until(lambda: not any(alive(pid) for pid in seen))
        os.kill(zygote, signal.SIGCONT)
        wait_until_dead([zygote])
        wait_until(lambda: not Path(str(config.socket_dir)).exists())


def wait_until_dead(processes: list[int], limit_s: float = 20.0) -> None:
    """Wait for the kernel to say that each is gone."""
    deadline = time.monotonic() + limit_s
    for pid in processes:
        descriptor = open_pid(pid)
        if descriptor is None:
            continue
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        gone = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        os.close(descriptor)
        assert gone, f"process {pid} outlives its supervisor"


def open_pid(pid: int) -> int | None:
    """A descriptor that is readable when the process is dead; None if it is reaped."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def test_a_folder_for_decisions_that_cannot_be_written_is_refused(
    config: Config, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    config = config.model_copy(update={"record_decisions": tmp_path / "file" / "in"})
    with pytest.raises(ConfigError, match=r"record_decisions: cannot write to .*/file/in: Not a"):
        serve(config, print)


def test_a_port_in_use_is_refused(config: Config) -> None:
    def announce(url: str) -> None:
        port = int(url.rpartition(":")[2])
        taken = config.model_copy(update={"port": port, "socket_dir": None})
        with_listener(port, lambda: serve(taken, stop_self, programs()))
        stop_self(url)

    assert serve(config, announce, programs()) == 0


def with_listener(port: int, action: Callable[[], int]) -> None:
    """Expect a refusal while ``port`` is taken."""
    refusal = f"cannot listen on 127.0.0.1:{port}: Address"
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ConfigError, match=refusal):
        action()


def test_a_second_deployment_cannot_share_the_socket_directory(config: Config) -> None:
    def announce(url: str) -> None:
        with pytest.raises(ConfigError, match="socket_dir: another deployment uses"):
            serve(config, stop_self, programs())
        stop_self(url)

    assert serve(config, announce, programs()) == 0


def test_no_member_gets_the_port_of_the_server(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def refuse(*arguments: object) -> None:
        asked.extend(arguments)
        raise StartupError("no TCP port is free")

    monkeypatch.setattr(supervisor, "check_port", lambda host, port: 12345)
    monkeypatch.setattr(supervisor, "choose_ports", refuse)
    with pytest.raises(StartupError):
        serve(config, stop_self, programs())
    assert asked[3] == 12345


def test_without_shared_imports_every_child_makes_its_own(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "uses_gpu", lambda config: True)
    assert serve(config, stop_self, programs()) == 0
    with pytest.raises(StartupError, match=r"^[a-z-]+: ImportError"):
        serve(config, stop_self, programs(prepare="broken_import"))


def test_members_that_share_a_gpu_load_one_after_the_other(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "uses_gpu", lambda config: True)
    with pytest.raises(StartupError, match="large: out of turn"):
        serve(config, stop_self, programs(member="in_turn"))
    monkeypatch.setattr(plan, "member_waves", lambda config: [0, 1])
    shutil.rmtree(str(config.socket_dir), ignore_errors=True)
    assert serve(config, stop_self, programs(member="in_turn")) == 0


def test_a_stop_before_the_last_wave(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "uses_gpu", lambda config: True)
    monkeypatch.setattr(plan, "member_waves", lambda config: [0, 1])
    begin = time.monotonic()
    with pytest.raises(StartupError, match="still waiting for front-end, large"):
        serve(config, stop_self, programs(front_end="slow"), start_limit_s=1.5)
    assert time.monotonic() - begin < 5  # it does not wait for the end of what never began


def news_of(config: Config, name: str) -> list[list[str]]:
    """What a fake heard from the supervisor, word by word."""
    path = Path(str(config.socket_dir)) / f"{name}.news"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def wait_until(condition: Callable[[], bool], limit_s: float = 15.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def aside(action: Callable[[], None]) -> Callable[[str], None]:
    """An announcement that does something while the deployment is kept, then ends it."""

    def act() -> None:
        try:
            action()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    return lambda url: threading.Thread(target=act).start()


@pytest.mark.parametrize("victim", CHILDREN)
def test_what_dies_is_started_again_and_everybody_knows(
    config: Config, victim: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    process = {"small": 0, "large": 1, "front-end": -1, "detokenizer": -2, "planner": -4}[victim]
    others = [name for name in CHILDREN if name != victim]
    heard: dict[str, list[list[str]]] = {}
    before: dict[str, int] = {}

    def kill() -> None:
        before.update(pids(config))
        os.kill(before[victim], signal.SIGKILL)
        wait_until(lambda: all(len(news_of(config, name)) == 2 for name in others))
        wait_until(lambda: "is back after" in caplog.text)
        assert {name for name in CHILDREN if pids(config)[name] != before[name]} == {victim}
        heard.update({name: news_of(config, name) for name in CHILDREN})

    assert serve(config, aside(kill), programs()) == 0
    assert f"{victim} died (killed by SIGKILL" in caplog.text
    assert f"{victim} is back after" in caplog.text
    assert heard.pop(victim) == []
    generations = set()
    for down, up in heard.values():
        assert down == ["Down", str(process)]
        assert up[:2] == ["Up", str(process)]
        generations.add(up[2])
    assert len(generations) == 1


def test_one_that_is_back_learns_who_is_not(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    """Two die together; each comes back into a deployment where the other may be missing."""

    def kill() -> None:
        before = pids(config)
        for name in ("small", "large"):
            os.kill(before[name], signal.SIGKILL)
        wait_until(lambda: len(news_of(config, "front-end")) == 4)
        wait_until(lambda: caplog.text.count("is back after") == 2)
        # Whoever was first hears that the other was down, then up; the other nothing.
        both = ("small", "large")
        wait_until(lambda: sorted(len(news_of(config, name)) for name in both) == [0, 2])

    assert serve(config, aside(kill), programs()) == 0
    assert "AssertionError" not in caplog.text


def test_a_crash_loop_ends_with_the_reason(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    config = config.model_copy(update={"max_restarts": 2})
    assert serve(config, lambda url: None, programs(member="crashing")) == 1
    assert caplog.text.count("it is started again") == 2
    assert (
        "stopping: large: ran into the same again; large was restarted 2 times within 600 s"
        in caplog.text
    )


@pytest.mark.parametrize("victim", CHILDREN)
def test_what_hangs_is_killed_and_started_again(
    config: Config, victim: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = config.model_copy(update={"hang_timeout_s": 0.8})
    seen: list[float] = []

    def stop() -> None:
        before = pids(config)[victim]
        os.kill(before, signal.SIGSTOP)
        begin = time.monotonic()
        wait_until(lambda: "is back after" in caplog.text)
        seen.append(time.monotonic() - begin)
        assert pids(config)[victim] != before

    caplog.set_level(logging.INFO)
    assert serve(config, aside(stop), programs()) == 0
    assert f"{victim} hangs (no sign of life for 0.8 s); " in caplog.text
    assert caplog.text.count("is started again") == 1, "somebody else was blamed"
    assert 0.8 < seen[0] < 5


def test_a_zygote_that_hangs_ends_everything(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    config = config.model_copy(update={"hang_timeout_s": 0.8})
    seen: list[int] = []

    def announce(url: str) -> None:
        seen.extend(pids(config).values())
        seen.append(parent_of(seen[0]))
        os.kill(seen[-1], signal.SIGSTOP)

    assert serve(config, announce, programs()) == 1
    assert "stopping: the zygote hangs (no sign of life for 0.8 s)" in caplog.text
    wait_until_dead(seen)


def test_a_supervisor_that_was_stopped_blames_nobody(config: Config) -> None:
    config = config.model_copy(update={"hang_timeout_s": 0.8})
    with started(config) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("http://")
        before = pids(config)
        for _ in range(2):
            process.send_signal(signal.SIGSTOP)
            time.sleep(1.5)
            process.send_signal(signal.SIGCONT)
            time.sleep(1.0)
        assert pids(config) == before
        process.terminate()
        assert process.wait(20) == 0


def test_a_drain_waits_for_the_front_end_but_not_for_ever(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    config = config.model_copy(update={"drain_timeout_s": 0.6})
    caplog.set_level(logging.INFO)
    begin: list[float] = []

    def announce(url: str) -> None:
        begin.append(time.monotonic())
        stop_self(url)

    assert serve(config, announce, programs(front_end="busy")) == 0
    assert 0.6 <= time.monotonic() - begin[0] < 10
    assert "finishing live requests, for 0.6 s at most" in caplog.text
    assert "the time is up: live requests end with an error" in caplog.text


def test_a_second_signal_ends_the_drain(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    def announce(url: str) -> None:
        stop_self(url)
        threading.Timer(0.5, stop_self, [url]).start()

    begin = time.monotonic()
    assert serve(config, announce, programs(front_end="busy")) == 0
    assert time.monotonic() - begin < 20
    assert "asked again: live requests end with an error" in caplog.text


def test_a_death_while_draining_is_not_mended(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    config = config.model_copy(update={"drain_timeout_s": 1.5})
    caplog.set_level(logging.INFO)

    def announce(url: str) -> None:
        before = pids(config)
        stop_self(url)
        threading.Timer(0.3, os.kill, [before["large"], signal.SIGKILL]).start()
        threading.Timer(0.6, os.kill, [before["front-end"], signal.SIGKILL]).start()

    begin = time.monotonic()
    assert serve(config, announce, programs(front_end="busy")) == 0
    assert "large died (killed by SIGKILL" in caplog.text
    assert "is started again" not in caplog.text
    assert "the time is up" not in caplog.text, "without a front end nothing is left to finish"
    assert time.monotonic() - begin < 20
