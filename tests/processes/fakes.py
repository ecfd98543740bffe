"""Children that need no models: each does one thing that a supervisor must cope with."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from tokenrouter.config import Config
from tokenrouter.errors import StartupError
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.supervision import (
    ChildLink,
    Drain,
    Drained,
    MemberReady,
    Ready,
    Serving,
    Up,
)
from tokenrouter.ipc.waiting import Waiter
from tokenrouter.processes.plan import Programs

HERE = "tests.processes.fakes"


def programs(
    member: str = "member",
    front_end: str = "front_end",
    detokenizer: str = "detokenizer",
    prepare: str = "nothing",
) -> Programs:
    """Fakes by the names of functions here."""
    return Programs(
        front_end=f"{HERE}:{front_end}",
        detokenizer=f"{HERE}:{detokenizer}",
        member=f"{HERE}:{member}",
        planner=f"{HERE}:planner",
        prepare=f"{HERE}:{prepare}",
    )


def ready(index: int, vocabulary: str = "same", max_visits: int = 256) -> MemberReady:
    """What a healthy member reports."""
    return MemberReady(
        member=index,
        pool_tokens=1000 + index,
        max_visits=max_visits,
        context_length=512,
        vocab_size=261,
        eos_ids=(260,),
        tokenizer=vocabulary,
    )


def member(config: Config, ports: Ports, index: int, cores: Sequence[int], link: ChildLink) -> None:
    """Be ready, and wait."""
    _leave_pid(ports, config.names[index])
    link.send(ready(index))
    roster = link.roster()
    if [each.pool_tokens for each in roster.members] != [1000, 1001]:
        raise StartupError(f"a wrong roster: {roster}")
    serve(link, ports, config.names[index])


def in_turn(
    config: Config, ports: Ports, index: int, cores: Sequence[int], link: ChildLink
) -> None:
    """Members that must not load at the same time: each takes a moment, in which none may begin."""
    marks = [ports.directory / f"{name}.loaded" for name in config.names]
    if [mark.exists() for mark in marks[: index + 1]] != [True] * index + [False]:
        raise StartupError("out of turn")
    time.sleep(0.2)
    marks[index].touch()
    member(config, ports, index, cores, link)


def front_end(config: Config, ports: Ports, link: ChildLink) -> None:
    """Serve nothing, at the configured port."""
    _leave_pid(ports, "front-end")
    link.send(Ready())
    link.roster()
    link.send(Serving(f"http://{config.host}:{config.port}"))
    serve(link, ports, "front-end")


def busy(config: Config, ports: Ports, link: ChildLink) -> None:
    """A front end whose requests never end."""
    _leave_pid(ports, "front-end")
    link.send(Ready())
    link.roster()
    link.send(Serving(f"http://{config.host}:{config.port}"))
    serve(link, ports, "front-end", answers_drain=False)


def detokenizer(config: Config, ports: Ports, link: ChildLink) -> None:
    """Be ready, and wait."""
    _leave_pid(ports, "detokenizer")
    link.send(Ready())
    link.roster()
    serve(link, ports, "detokenizer")


def planner(config: Config, ports: Ports, link: ChildLink) -> None:
    """Be ready, and wait."""
    _leave_pid(ports, "planner")
    link.send(Ready())
    link.roster()
    serve(link, ports, "planner")


def serve(link: ChildLink, ports: Ports, name: str, answers_drain: bool = True) -> None:
    """Answer pings, write down the news, and have no request to finish."""
    waiter = Waiter([], link)
    (ports.directory / f"{name}.news").unlink(missing_ok=True)
    while True:
        waiter.wait(None)
        for news in link.receive():
            if isinstance(news, Drain):
                if answers_drain:
                    link.send(Drained())
            else:
                generation = news.generation if isinstance(news, Up) else ""
                with (ports.directory / f"{name}.news").open("a") as file:
                    file.write(f"{type(news).__name__} {news.process} {generation}\n")


def odd_vocabulary(
    config: Config, ports: Ports, index: int, cores: Sequence[int], link: ChildLink
) -> None:
    """Members that loaded different vocabularies."""
    link.send(ready(index, vocabulary=f"vocabulary {index}"))
    link.roster()


def tiny(config: Config, ports: Ports, index: int, cores: Sequence[int], link: ChildLink) -> None:
    """Members that hold one visit."""
    link.send(ready(index, max_visits=1))
    link.roster()


def without_weights(
    config: Config, ports: Ports, index: int, cores: Sequence[int], link: ChildLink
) -> None:
    """The second member cannot start, and knows why."""
    if index == 1:
        raise StartupError("its weights are missing; download them")
    member(config, ports, index, cores, link)


def buggy(config: Config, ports: Ports, index: int, cores: Sequence[int], link: ChildLink) -> None:
    """The second member raises what nobody expected."""
    if index == 1:
        raise ZeroDivisionError("a bug")
    member(config, ports, index, cores, link)


def killed(config: Config, ports: Ports, index: int, cores: Sequence[int], link: ChildLink) -> None:
    """The second member is killed while it loads, as when memory runs out."""
    if index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    member(config, ports, index, cores, link)


def crashing(
    config: Config, ports: Ports, index: int, cores: Sequence[int], link: ChildLink
) -> None:
    """The second member dies whenever it serves."""
    if index == 0:
        member(config, ports, index, cores, link)
    link.send(ready(index))
    link.roster()
    Waiter([], link).wait(None)  # the first ping: the start is over
    raise StartupError("ran into the same again")


def stubborn(
    config: Config, ports: Ports, index: int, cores: Sequence[int], link: ChildLink
) -> None:
    """Members that do not end when asked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    member(config, ports, index, cores, link)


def slow(config: Config, ports: Ports, link: ChildLink) -> None:
    """A front end that is never ready."""
    signal.pause()


def impatient(config: Config, ports: Ports, link: ChildLink) -> None:
    """A front end during whose start somebody asks the supervisor to stop."""
    os.kill(parent_of(os.getppid()), signal.SIGTERM)
    signal.pause()


def impatient_imports(config: Config) -> None:
    """Imports during which somebody asks the supervisor to stop."""
    os.kill(os.getppid(), signal.SIGTERM)
    signal.pause()


def slow_imports(config: Config) -> None:
    """Imports that take long."""
    assert config.socket_dir
    path = config.socket_dir / "importing"
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    time.sleep(60)


def parent_of(pid: int) -> int:
    """The parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def nothing(config: Config) -> None:
    """No imports."""


def broken_import(config: Config) -> None:
    """Imports that fail."""
    raise ImportError("no module named 'half_a_wheel'")


def _leave_pid(ports: Ports, name: str) -> None:
    (ports.directory / f"{name}.pid").write_text(str(os.getpid()))
