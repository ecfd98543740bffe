"""What operators ask for: flushing, weights, profiles, aborts, a pause.

What concerns members goes to each of them by the `Inspector`; every answer is reported.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import Response

from tokenrouter.config import Config
from tokenrouter.errors import RequestError
from tokenrouter.frontend.http_errors import shape
from tokenrouter.frontend.operator_protocol import AbortBody, ProfileBody, VersionBody, WeightsBody
from tokenrouter.frontend.quoting import quoted
from tokenrouter.frontend.tokenizer_manager import RoutedTokenizerManager
from tokenrouter.ipc.operations import Action, Controlled

QUICK_S = 30.0
"""For a member to answer what takes it a moment: it may be in a long step."""
TRACE_S = 300.0
"""For a trace to be written."""
WEIGHTS_S = 1800.0
BUSY_S = 2.0
"""For a member to hear that its last requests are over, and for aborted ones to end."""
BUSY_PAUSE_S = 0.05


class Operations:
    """The endpoints; each public method is one."""

    def __init__(self, config: Config, manager: RoutedTokenizerManager) -> None:
        self._config, self._manager = config, manager

    async def flush_cache(self) -> Response:
        """Empty the prefix cache of every member; 409 while requests are being served."""
        async with self._manager.admission.alone():
            return await self._report("flush_cache", self._everyone({}), QUICK_S)

    async def update_weights(self, body: WeightsBody) -> Response:
        """Exchange the weights of one member; 409 while requests are being served."""
        member = self._member(body)
        arguments = {member: body.model_dump(include={"model_path", "load_format"})}
        if body.abort_all_requests:
            self._manager.abort_all()
        patience = BUSY_S if body.abort_all_requests else 0.0
        async with self._manager.admission.alone(patience):
            answer = await self._report("update_weights_from_disk", arguments, WEIGHTS_S)
        if answer.status_code == 200 and body.weight_version is not None:
            self._manager.server_args.weight_version = body.weight_version
        return answer

    async def update_version(self, body: VersionBody) -> Response:
        """Change the version that answers carry."""
        if body.abort_all_requests:
            self._manager.abort_all()
        self._manager.server_args.weight_version = body.new_version
        message = f"the weight version is {body.new_version}"
        return _json({"success": True, "message": message, "new_version": body.new_version})

    async def start_profile(self, body: ProfileBody | None = None) -> Response:
        """Begin to record what every member's processor does."""
        body = body or ProfileBody()
        arguments = body.model_dump(exclude_none=True)
        started = f"{time.time():.0f}"
        return await self._report(
            "start_profile",
            {
                member: {**arguments, "profile_id": f"{started}-{name}"}
                for member, name in enumerate(self._config.names)
            },
            QUICK_S,
        )

    async def stop_profile(self) -> Response:
        """Stop recording, and write one trace per member."""
        return await self._report("stop_profile", self._everyone({}), TRACE_S)

    async def abort(self, body: AbortBody) -> Response:
        """End one request, by its ``rid`` or the id of its answer, or all; says how many."""
        if not body.abort_all and not body.rid:
            raise RequestError("rid: say which request to abort, or give abort_all: true", "rid")
        ended = self._manager.abort_all() if body.abort_all else self._manager.abort(body.rid)
        return _json({"aborted": ended})

    async def pause(self) -> Response:
        """End every request, and let new ones wait."""
        self._manager.admission.pause()
        self._manager.abort_all()
        return _json({"message": "Generation paused successfully.", "status": "ok"})

    async def resume(self) -> Response:
        """Let requests be served again."""
        self._manager.admission.resume()
        return _json({"message": "Generation continued successfully.", "status": "ok"})

    def _everyone(self, arguments: dict[str, Any]) -> dict[int, dict[str, Any]]:
        return dict.fromkeys(range(len(self._config.names)), arguments)

    def _member(self, body: WeightsBody) -> int:
        names = self._config.names
        if body.member is None and len(names) == 1:
            return 0
        if body.member not in names:
            known = ", ".join(map(repr, names))
            raise RequestError(
                f"member: say whose weights these are, one of {known}; got {quoted(body.member)}",
                "member",
            )
        return names.index(body.member)

    async def _report(
        self, action: Action, arguments: Mapping[int, dict[str, Any]], timeout_s: float
    ) -> Response:
        answers = await self._carry_out(action, arguments, timeout_s)
        members = {
            self._config.names[member]: _told(answers.get(member), timeout_s)
            for member in arguments
        }
        failed = {name: told for name, told in members.items() if not told["success"]}
        told = "; ".join(f"{name}: {each['message']}" for name, each in (failed or members).items())
        content = {"success": not failed, "message": told, "members": members}
        if action == "update_weights_from_disk":
            content["num_paused_requests"] = 0
        status = _status(arguments, answers)
        return _json({**(shape(status, told) if failed else {}), **content}, status)

    async def _carry_out(
        self, action: Action, arguments: Mapping[int, dict[str, Any]], timeout_s: float
    ) -> dict[int, Controlled]:
        """Ask members; those that still hold requests are asked again for a moment."""
        deadline = time.monotonic() + BUSY_S
        answers: dict[int, Controlled] = {}
        missing = dict(arguments)
        while True:
            answers |= await self._manager.inspector.control(action, missing, timeout_s)
            missing = {m: arguments[m] for m, each in answers.items() if each.busy}
            if not missing or time.monotonic() > deadline:
                return answers
            await asyncio.sleep(BUSY_PAUSE_S)


def _told(answer: Controlled | None, timeout_s: float) -> dict[str, Any]:
    if answer is None:
        return {"success": False, "message": f"no answer within {timeout_s:g} seconds"}
    return {"success": answer.success, "message": answer.message}


def _status(asked: Mapping[int, Any], answers: Mapping[int, Controlled]) -> int:
    if len(answers) < len(asked):
        return 503
    if any(answer.busy for answer in answers.values()):
        return 409
    return 200 if all(answer.success for answer in answers.values()) else 400


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
