"""What the server says of itself: models, health, configuration, state of the members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import orjson
from fastapi import Response

import tokenrouter
from tokenrouter.config import Config
from tokenrouter.errors import MemberDeadError
from tokenrouter.frontend import names
from tokenrouter.frontend.inspection import HEALTH_TIMEOUT_S, STATE_TIMEOUT_S
from tokenrouter.frontend.tokenizer_manager import RoutedTokenizerManager
from tokenrouter.ipc.messages import MemberState
from tokenrouter.subserver.sglang_compat.serving import ModelCard, ModelList


class Information:
    """The endpoints; each method is one."""

    def __init__(self, config: Config, manager: RoutedTokenizerManager) -> None:
        self._config, self._manager = config, manager

    async def health(self) -> Response:
        """200 if every member's loop answers; 503 if one does not, or the server is stopping."""
        self._manager.presence.check()
        states = await self._manager.inspector.ask(HEALTH_TIMEOUT_S)
        pairs = zip(self._config.names, states, strict=True)
        if silent := [repr(name) for name, state in pairs if state is None]:
            raise MemberDeadError(f"no answer from {', '.join(silent)}")
        return _json({"status": "ok"})

    async def models(self) -> Response:
        """The routed model, then each member alone."""
        cards = [self._card(name) for name in names.ids(self._config)]
        return _json(ModelList(data=cards).model_dump())

    async def model_info(self) -> Response:
        """What SGLang's clients ask for: above all, whose tokenizer is used."""
        args = self._manager.server_args
        return _json(
            {
                "model_path": args.model_path,
                "tokenizer_path": args.tokenizer_path,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": args.weight_version,
            }
        )

    async def server_info(self) -> Response:
        """The configuration; what each member can hold, holds and has done; who was restarted."""
        states = await self._manager.inspector.ask(STATE_TIMEOUT_S)
        public = self._config.public()
        del public["ports"], public["socket_dir"]
        return _json(
            {
                "version": tokenrouter.__version__,
                **public,
                "models": self._members(states),
                "processes": self._manager.presence.report(),
            }
        )

    def _card(self, name: str) -> ModelCard:
        members = names.resolve(name, None, self._config).members
        return ModelCard(
            id=name,
            owned_by="tokenrouter",
            root=self._config.served_name,
            max_model_len=min(
                self._manager.presence.roster.members[m].context_length for m in members
            ),
        )

    def _members(self, states: Sequence[MemberState | None]) -> list[dict[str, Any]]:
        parts = zip(self._config.models, self._manager.presence.roster.members, states, strict=True)
        return [
            {
                **model.model_dump(),
                **msgspec.structs.asdict(ready),
                "state": _public(state) if state else None,
            }
            for model, ready, state in parts
        ]


def _public(state: MemberState) -> dict[str, Any]:
    """Without what `/metrics` tells."""
    shown = msgspec.structs.asdict(state)
    del shown["counters"]
    return shown


def _json(content: dict[str, Any]) -> Response:
    """Unlike FastAPI's, it writes an infinite threshold (as null)."""
    data = orjson.dumps(content, default=str, option=orjson.OPT_NON_STR_KEYS)
    return Response(data, media_type="application/json")
