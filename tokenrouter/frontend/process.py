"""The front-end process: bind, load the tokenizer, wait for the members, serve."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable

import uvicorn
import zmq

from tokenrouter.config import UNIX_HOST, Config
from tokenrouter.errors import StartupError
from tokenrouter.frontend.app import build_app
from tokenrouter.frontend.fan_out import FanOut
from tokenrouter.frontend.http_protocol import BoundedHttp
from tokenrouter.frontend.presence import Presence
from tokenrouter.frontend.supervision import Supervision
from tokenrouter.frontend.tokenizer_manager import RoutedTokenizerManager
from tokenrouter.frontend.traffic import Traffic
from tokenrouter.ipc.channels import Inbox
from tokenrouter.ipc.messages import DETOKENIZER, FRONT_END
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.supervision import ChildLink, Ready
from tokenrouter.processes import kernel
from tokenrouter.subserver.sglang_compat.serving import (
    front_end_args,
    load_templates,
    sglang_ports,
)

GRACE_S = 2
"""Seconds that clients have after SIGTERM to take the answer that the server is stopping."""
BACKLOG = 2048


def run_front_end(config: Config, ports: Ports, link: ChildLink) -> None:
    """The process; after SIGTERM it answers every request it still has, and ends.

    Raises:
        StartupError: the address cannot be listened on.
    """
    kernel.yield_to_members()
    kernel.allow_descriptors()
    listener = bind_private(ports) if config.host == UNIX_HOST else bind(config.host, config.port)
    args = front_end_args(config)
    manager = RoutedTokenizerManager(args, sglang_ports(), config.names, config.max_requests)
    templates = load_templates(manager)
    link.send(Ready())
    roster = link.roster()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    inbox = Inbox(
        context,
        ports.tokenizer,
        {DETOKENIZER: roster.generation(DETOKENIZER)},
        roster.generation(FRONT_END),
    )
    presence = Presence(roster, config.names)
    manager.connect(FanOut(context, ports, roster), presence, inbox, Traffic(config))
    app = build_app(config, manager, templates)
    gc.freeze()
    settings = uvicorn.Config(
        app,
        loop="uvloop",
        http=BoundedHttp,
        log_level=config.log_level,
        log_config=None,
        access_log=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_S,
    )
    try:
        supervision = Supervision(link, manager, _url(listener))
        _Server(settings, supervision.watch, manager.stop).run([listener])
    finally:
        manager.close()
        context.destroy()


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the address of the server; clients are refused until it listens.

    Raises:
        StartupError: the address is taken, not allowed, or not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise StartupError(
            f"port: cannot listen on {host}:{port}: {error.strerror}; stop what uses it, or "
            "choose another with --port (0: any free one)"
        ) from error
    return listener


def bind_private(ports: Ports) -> socket.socket:
    """A socket bound in the deployment's private directory."""
    ports.http.unlink(missing_ok=True)  # of a front end that died
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.fspath(ports.http))
    return listener


class _Server(uvicorn.Server):
    """Calls ``on_listening`` once clients can connect, ``on_stop`` when it was told to end."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_listening: Callable[[], None],
        on_stop: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._on_listening, self._on_stop = on_listening, on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._on_listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End every request, then the connections."""
        self._on_stop()
        await super().shutdown(sockets)


def _url(listener: socket.socket) -> str:
    if listener.family == socket.AF_UNIX:
        return f"{UNIX_HOST}:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
