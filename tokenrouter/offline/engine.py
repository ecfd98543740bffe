"""`tokenrouter.Engine`: the runtime of the server, for one program and without a network.

It starts a supervisor of its own (`offline.handle`) and asks its front end over a UNIX
socket in the deployment's private directory (`offline.client`).
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tokenrouter.config import DEMO_CONFIG, UNIX_HOST, Config, load
from tokenrouter.configuration.layers import Layer
from tokenrouter.errors import ConfigError
from tokenrouter.offline.client import Client
from tokenrouter.offline.handle import ServerProcess

Prompt = str | Sequence[str]
Ids = Sequence[int] | Sequence[Sequence[int]]
Sampling = Mapping[str, Any] | Sequence[Mapping[str, Any]]

OF_A_SERVER = ("host", "port", "api_key")
"""Fields without meaning here: nobody else can reach the engine."""
DEFAULTS: Mapping[str, Any] = {
    "host": UNIX_HOST,
    "log_level": "warning",
    "drain_timeout_s": 2.0,
    "max_requests": 131_072,
    "max_body_bytes": 1024**3,
    "max_body_values": 1024**3,
}
"""Other than a server's: a program speaks for itself, hangs up before it ends its engine, and may
ask for a whole data set at once."""


class Engine:
    """A deployment that lives as long as this object, or its program.

        with Engine(demo=True) as engine:
            answer = engine.generate("Dan has 4 boxes", {"max_new_tokens": 16})

    Args:
        config: a YAML file, as ``tokenrouter serve --config`` takes it.
        demo: the embedded demo pair instead.
        overrides: fields of `Config`; ``models`` is a list of entries, or maps names to the
            arguments to change.

    Raises:
        ConfigError: it cannot be served; every problem names the field and the remedy.
        StartupError: a process could not start; the message says which and why.
    """

    def __init__(
        self, config: str | Path | None = None, *, demo: bool = False, **overrides: Any
    ) -> None:
        if demo and config is not None:
            raise ConfigError("demo: brings its own configuration; leave out config")
        path = DEMO_CONFIG if demo else config
        configuration = _configuration(None if path is None else Path(path), overrides)
        self._process = ServerProcess(configuration)
        self._client = Client(self._process)
        weakref.finalize(self, self._client.close)

    @property
    def pid(self) -> int:
        """Of the supervisor, which ends with this program, and every other process with it."""
        return self._process.pid

    @property
    def socket(self) -> str:
        """Path of the UNIX socket at which its front end answers, as a server does over HTTP."""
        return self._process.socket

    def generate(
        self,
        prompt: Prompt | None = None,
        sampling_params: Sampling | None = None,
        input_ids: Ids | None = None,
        *,
        stream: bool = False,
        model: str | None = None,
        routing: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Any:
        """Answer one prompt, or a list of them.

        Args:
            prompt: text, or several; or else give ``input_ids``.
            sampling_params: by SGLang's names; for several prompts also one each.
            input_ids: token ids of one prompt or of several.
            stream: answer piece by piece; each answer holds the whole text so far.
            model: ``NAME@THRESHOLD`` or ``NAME/MEMBER``; None: routed as configured.
            routing: the request's routing (``router_threshold``, ``seed``, ``token_models``).
            fields: further fields of ``/generate``.

        Returns:
            An answer as SGLang's engine gives it (``text``, ``output_ids``, ``meta_info``, here
            with the routing), a list of them, or an iterator; one that is closed or dropped ends
            its request.

        Raises:
            RequestError: the request is wrong; ``field`` names what is.
            MemberDeadError: a process died under it; ask again.
            EngineClosedError: the engine has ended.
        """
        body = _body(prompt, sampling_params, input_ids, stream, model, routing, fields)
        return self._client.stream(body) if stream else self._client.ask(body)

    async def async_generate(
        self,
        prompt: Prompt | None = None,
        sampling_params: Sampling | None = None,
        input_ids: Ids | None = None,
        *,
        stream: bool = False,
        model: str | None = None,
        routing: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Any:
        """As `generate`, in an event loop; with ``stream`` an asynchronous iterator."""
        body = _body(prompt, sampling_params, input_ids, stream, model, routing, fields)
        return self._client.stream_async(body) if stream else await self._client.ask_async(body)

    def server_info(self) -> dict[str, Any]:
        """The configuration, and what each member can hold, holds and has done."""
        return self._client.server_info()

    def shutdown(self) -> None:
        """End every process; requests that are live fail. May be called again."""
        self._client.close()
        self._process.end()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()


def _configuration(path: Path | None, overrides: Mapping[str, Any]) -> Config:
    if refused := [name for name in OF_A_SERVER if name in overrides]:
        raise ConfigError(
            *(f"{name}: nobody else reaches an Engine; remove it" for name in refused)
        )
    origins = {name: f"Engine({name}=...)" for name in overrides}
    config = load(path, Layer(overrides, origins), defaults=DEFAULTS)
    return config.model_copy(update={"host": UNIX_HOST, "api_key": None})


def _body(
    prompt: Prompt | None,
    sampling_params: Sampling | None,
    input_ids: Ids | None,
    stream: bool,
    model: str | None,
    routing: Mapping[str, Any] | None,
    fields: Mapping[str, Any],
) -> dict[str, Any]:
    given = {
        "text": prompt,
        "sampling_params": sampling_params,
        "input_ids": input_ids,
        "model": model,
        "routing": routing,
        **fields,
    }
    return {"stream": stream, **{name: value for name, value in given.items() if value is not None}}
