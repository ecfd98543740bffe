"""A deployment whose front end and detokenizer are real and whose members are a script."""

from __future__ import annotations

import json
import multiprocessing
import re
import signal
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import zmq

from tokenrouter.config import Config
from tokenrouter.demo.tokenizer import build_tokenizer, save_tokenizer
from tokenrouter.errors import TokenRouterError
from tokenrouter.frontend.detokenizer import run_detokenizer
from tokenrouter.frontend.process import run_front_end
from tokenrouter.ipc.channels import Inbox, Outbox
from tokenrouter.ipc.member_state import Measurements, MemberState, StepSums
from tokenrouter.ipc.messages import FRONT_END, Abort, Logprob, Route, Sampling, Submit
from tokenrouter.ipc.operations import Control, Controlled, Inspect
from tokenrouter.ipc.ports import Ports, choose_ports
from tokenrouter.ipc.supervision import (
    ChildLink,
    ChildMessage,
    Hello,
    MemberReady,
    Roster,
    Serving,
    StartupFailed,
    StreamDecoder,
    encode,
)
from tokenrouter.processes import logs
from tokenrouter.subserver.finish import FinishRule, aborted
from tokenrouter.subserver.owned import Owned

TOKENIZER: Any = build_tokenizer()
END_ID: int = TOKENIZER.eos_token_id
NAMES = ("small", "large")
SCRIPT = re.compile(rb"SAY\((.*)\)SAID", re.DOTALL)
"""What a prompt may tell the members to answer, word for word."""
TOKEN_S = 0.003
"""How long a token of a stream takes."""
MODEL = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 320,
    "max_position_embeddings": 2048,
    "eos_token_id": END_ID,
    "torch_dtype": "float32",
}


def model_folder(path: Path) -> Path:
    """A model folder without weights: what a front end reads of it."""
    save_tokenizer(path)
    (path / "config.json").write_text(json.dumps(MODEL))
    return path


def make_config(folder: Path, **changes: Any) -> Config:
    """Two members named `NAMES`, routed by ``entropy``, on a free port."""
    settings = {
        "served_name": "demo",
        "algorithm": "entropy",
        "router_threshold": 0.45,
        "port": 0,
        "log_level": "warning",
        "models": [{"name": name, "model_path": folder} for name in NAMES],
    }
    return Config.model_validate({**settings, **changes})


def make_roster(**changes: Any) -> Roster:
    """What two members would report; the second is the tighter one."""

    def member(index: int, **more: Any) -> MemberReady:
        ready = {
            "pool_tokens": 4096,
            "max_visits": 64,
            "context_length": 1024,
            "vocab_size": 320,
            "eos_ids": (END_ID,),
            "tokenizer": "",
        }
        return MemberReady(member=index, **{**ready, **more})

    return Roster((member(0), member(1, **{"context_length": 512, **changes})), (0, 0))


def reply(prompt: Sequence[int], sample: int) -> list[int]:
    """The text that a request is answered with, and its end: a function of the prompt."""
    if script := SCRIPT.search(bytes(i for i in prompt if i < 256)):
        return [*script[1], END_ID]
    text = TOKENIZER.decode(prompt[-12:], skip_special_tokens=True)
    return [*f"🙂{sample} né: {text.upper()} 漢字".encode(), END_ID]


def reply_text(prompt: Sequence[int], sample: int = 0) -> str:
    """`reply` as text, without its end."""
    return bytes(reply(prompt, sample)[:-1]).decode()


@dataclass
class Submitted:
    """A request that reached the member ``home``."""

    home: int
    submit: Submit

    @property
    def route(self) -> Route:
        return self.submit.route

    @property
    def sampling(self) -> Sampling:
        return self.submit.sampling


@dataclass
class FakeMembers:
    """Every member in one thread. Each writes one token in turn; ``hold`` stops all writing.

    A prompt that contains ``FAIL`` fails with status 503 after three tokens, one with
    ``STOP`` never gets a token, one with ``HALF`` no sixth.
    """

    ports: Ports
    roster: Roster
    submitted: list[Submitted] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    controls: list[tuple[int, Control]] = field(default_factory=list)
    silent: set[int] = field(default_factory=set)
    """Members that do not answer questions."""
    busy: dict[int, int] = field(default_factory=dict)
    """How often a member answers that it holds requests."""
    mute: set[int] = field(default_factory=set)
    """Members that never write a token."""
    failing: set[int] = field(default_factory=set)
    """Members that cannot do what they are told to."""

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[int, tuple[int, Owned]] = {}
        self._running = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._running = False
        self._thread.join()

    def clear(self) -> None:
        self.submitted.clear()
        self.aborted.clear()
        self.controls.clear()
        for trouble in (self.silent, self.busy, self.mute, self.failing):
            trouble.clear()

    def wait_for(self, condition: Callable[[], bool], timeout: float = 20.0) -> bool:
        """Whether ``condition`` (of what was received) comes true in time."""
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    def _run(self) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        inboxes = [Inbox(context, port.input, {FRONT_END: 0}) for port in self.ports.members]
        outboxes = [
            Outbox(context, self.ports.detokenizer, member) for member in range(len(inboxes))
        ]
        poller = zmq.Poller()
        for inbox in inboxes:
            poller.register(inbox.socket, zmq.POLLIN)
        while self._running:
            poller.poll(50)
            for member, inbox in enumerate(inboxes):
                for _, message in inbox.drain():
                    with self._changed:
                        self._receive(member, message, outboxes[member])
                        self._changed.notify_all()
        for inbox in inboxes:
            inbox.close()
        for outbox in outboxes:
            outbox.close()
        context.term()

    def _receive(self, member: int, message: Any, outbox: Outbox) -> None:
        if isinstance(message, Submit):
            self.submitted.append(Submitted(member, message))
            self._answer(member, message, outbox)
        elif isinstance(message, Abort):
            self.aborted.append(message.uid)
            if waiting := self._waiting.pop(message.uid, None):
                outbox.post(waiting[1].output(aborted("by the client"), 0))
        elif isinstance(message, Inspect) and member not in self.silent:
            outbox.post(state_of(message.ticket, member))
        elif isinstance(message, Control) and member not in self.silent:
            outbox.post(self._control(member, message))
        outbox.flush()

    def _control(self, member: int, control: Control) -> Controlled:
        self.controls.append((member, control))
        if self.busy.get(member):
            self.busy[member] -= 1
            return Controlled(control.ticket, member, False, "1 requests are here", busy=True)
        success = member not in self.failing
        return Controlled(control.ticket, member, success, "done" if success else "cannot")

    def _answer(self, member: int, submit: Submit, outbox: Outbox) -> None:
        members = submit.route.members
        rule = FinishRule(submit.sampling, (END_ID,), TOKENIZER.decode)
        owned = Owned(submit, rule, len(NAMES))
        text = bytes(i for i in submit.prompt if i < 256)
        if b"STOP" in text or member in self.mute:
            self._waiting[submit.uid] = member, owned
            return
        if b"BAD GRAMMAR" in text:
            outbox.post(owned.output(aborted("regex: no such grammar", 400, "regex"), 0))
            return
        if b"BAD ALGORITHM" in text:
            outbox.post(owned.output(aborted("algorithm: no such network", 400, "algorithm"), 0))
            return
        if finish := rule.full(0):
            outbox.post(owned.output(finish, 0))
            return
        for i, token in enumerate(reply(submit.prompt, submit.route.sample)):
            if b"HALF" in text and i == 5:
                self._waiting[submit.uid] = member, owned
                return
            if submit.stream:
                time.sleep(TOKEN_S)  # or all would be decoded at once
            if b"FAIL" in text and i == 6:
                time.sleep(0.3 * submit.stream)
                finish = aborted("a model died", 503)
            else:
                logprobs = [logprob(token, i, submit.sampling.logprobs)]
                owned.append(members[i % len(members)], [token], logprobs)
                finish = owned.settle(0)
                owned.hand_overs += len(members) > 1
            if finish or submit.stream:
                outbox.post(owned.output(finish, 2))
                outbox.flush()
            if finish:
                return


def logprob(token: int, position: int, top: int | None) -> Logprob:
    """What members say of output token ``position``, with ``top`` alternatives."""
    value = -0.25 * (position + 1)
    return Logprob(value, [(token + k, value - k) for k in range(top or 0)])


def state_of(ticket: int, member: int) -> MemberState:
    """What an idle member answers."""
    return MemberState(
        ticket=ticket,
        member=member,
        visits=0,
        requests=0,
        live=0,
        threshold=1,
        free_tokens=100,
        pool_tokens=100,
        batches={1: 3},
        step_ms=1.0,
        expired_waits=0,
        evictions=0,
        stale=0,
        dropped={},
        measurements=Measurements(
            at=2.0,
            steps={1: StepSums(3, 0.003, 0.000003, 3, 3, 0.003)},
            prefill=StepSums(0, 0.0, 0.0, 0, 0, 0.0),
            profile={},
            hops={1: (1, 0)},
            runs={1: 1},
            live_seconds=0.5,
        ),
    )


@dataclass
class Deployment:
    """A running one; ``front_end`` and ``detokenizer`` are its processes."""

    url: str
    config: Config
    members: FakeMembers
    front_end: BaseProcess
    detokenizer: BaseProcess


@contextmanager
def deployment(config: Config, roster: Roster) -> Iterator[Deployment]:
    """Start front end and detokenizer in processes of their own, members in a thread.

    The processes are forked, as in production. (There, no thread runs yet; here the members
    of another deployment may, which newer Pythons warn of.)
    """
    with tempfile.TemporaryDirectory() as directory:
        ports = choose_ports(Path(directory), config.names, {})
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(str(ports.supervisor))
        server.listen()
        server.settimeout(30)
        fork = multiprocessing.get_context("fork")
        processes = [
            fork.Process(target=_child, args=(entry, config, ports))
            for entry in (run_front_end, run_detokenizer)
        ]
        members: FakeMembers | None = None
        links: list[_Link] = []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                for process in processes:
                    process.start()
            links += [_Link(server.accept()[0]) for _ in processes]
            for link in links:
                link.ready()
            members = FakeMembers(ports, roster)
            for link in links:
                link.socket.sendall(encode(roster))
            url = next(link for link in links if link.name == "run_front_end").serving()
            yield Deployment(url, config, members, *processes)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.join(10)
            if members is not None:
                members.close()
            for link in links:
                link.socket.close()
            server.close()
        assert [process.exitcode for process in processes] == [0, 0]


def leave(
    server: Deployment, path: str, body: dict[str, Any], requests: int = 1, key: str = ""
) -> float:
    """Send a body, wait until members have its ``requests``, hang up; returns when."""
    url = urlsplit(server.url)
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {url.hostname}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    members = server.members
    wanted = len(members.submitted) + requests
    with socket.create_connection((url.hostname, url.port)) as connection:
        connection.sendall(head.encode() + data)
        assert members.wait_for(lambda: len(members.submitted) == wanted)
        time.sleep(0.25)  # the request is being waited for, not still being read
    return time.monotonic()


class StartupFailedError(Exception):
    """A child could not start."""


class _Link:
    """The supervisor's end of one child's link."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.settimeout(30)
        self._decoder = StreamDecoder()
        self._messages: list[ChildMessage] = []
        hello = self._next()
        assert isinstance(hello, Hello)
        self.name = hello.name

    def ready(self) -> None:
        message = self._next()
        if isinstance(message, StartupFailed):
            raise StartupFailedError(message.reason)

    def serving(self) -> str:
        message = self._next()
        assert isinstance(message, Serving)
        return message.url

    def _next(self) -> ChildMessage:
        while not self._messages:
            self._messages += self._decoder.feed(self.socket.recv(65536))
        return self._messages.pop(0)


def _child(entry: Callable[[Config, Ports, ChildLink], None], config: Config, ports: Ports) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    logs.set_up(entry.__name__, config.log_level)
    signal.signal(signal.SIGTERM, stop)
    link = ChildLink(ports.supervisor, entry.__name__)
    try:
        entry(config, ports, link)
    except TokenRouterError as error:
        link.send(StartupFailed(str(error)))
        raise SystemExit(1) from error
