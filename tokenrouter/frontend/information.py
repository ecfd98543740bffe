"""What the server says of itself: models, health, configuration, state of the members."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import orjson
from fastapi import Response

import tokenrouter
from tokenrouter.config import Config
from tokenrouter.errors import MemberDeadError, RoutingError
from tokenrouter.frontend import names
from tokenrouter.frontend.exchange import Exchange
from tokenrouter.frontend.inspection import HEALTH_TIMEOUT_S, STATE_TIMEOUT_S
from tokenrouter.frontend.tokenizer_manager import RoutedTokenizerManager
from tokenrouter.ipc.measured import to_json
from tokenrouter.ipc.member_state import MemberState
from tokenrouter.schedulers import registry
from tokenrouter.subserver.sglang_compat.serving import GenerateReqInput, ModelCard, ModelList


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

    async def health_generate(self) -> Response:
        """200 if every member, alone, writes a token; 503 if one does not, or not in time."""
        members = range(len(self._config.names))
        alive = await asyncio.gather(*(self._writes(member) for member in members))
        pairs = zip(self._config.names, alive, strict=True)
        if silent := [repr(name) for name, here in pairs if not here]:
            raise MemberDeadError(f"no token from {', '.join(silent)}")
        return _json({"status": "ok"})

    async def model(self, model: str) -> Response:
        """One of the names that requests may use."""
        return _json(self._card(model).model_dump())

    async def load(self) -> Response:
        """Requests and tokens of every member, as SGLang's load balancers ask for them."""
        states = await self._manager.inspector.ask(STATE_TIMEOUT_S)
        pairs = zip(self._config.names, states, strict=True)
        return _json(
            {
                name: {
                    "num_reqs": state.requests,
                    "num_visits": state.visits,
                    "num_tokens": state.pool_tokens - state.free_tokens,
                }
                if state
                else None
                for name, state in pairs
            }
        )

    async def weight_version(self) -> Response:
        """The version that answers carry."""
        return _json({"weight_version": self._manager.server_args.weight_version})

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
        """The configuration; what each member can hold, holds and has done; who was restarted.

        ``plan``: the automatic thresholds, by number of live requests; null: there are none yet.
        """
        states = await self._manager.inspector.ask(STATE_TIMEOUT_S)
        public = self._config.public()
        del public["ports"], public["socket_dir"]
        return _json(
            {
                "version": tokenrouter.__version__,
                **public,
                "router_threshold_range": registry.find(self._config.algorithm).threshold_range,
                "models": self._members(states),
                "plan": self._plan(),
                "processes": self._manager.presence.report(),
            }
        )

    def _plan(self) -> dict[str, Any] | None:
        planned = self._manager.inspector.planned
        return None if planned is None else msgspec.structs.asdict(planned)

    async def _writes(self, member: int) -> bool:
        """Whether a member writes a token: not counted, and never waiting with others."""
        route = names.single(member, names.RoutingOptions(), self._config)
        exchange = Exchange(route, "input_ids", "max_new_tokens")
        work = GenerateReqInput(
            input_ids=[0], sampling_params={"max_new_tokens": 1, "temperature": 0.0}
        )
        work.exchange = exchange
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                answer = await anext(self._manager.generate_request(work))
        except (TimeoutError, MemberDeadError, RoutingError):
            return False
        finally:
            self._manager.finish(exchange)
        return len(answer["output_ids"]) == 1

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
    if state.measurements is not None:
        shown["measurements"] = to_json(state.measurements)
    return shown


def _json(content: dict[str, Any]) -> Response:
    """Unlike FastAPI's, it writes an infinite threshold (as null)."""
    data = orjson.dumps(content, default=str, option=orjson.OPT_NON_STR_KEYS)
    return Response(data, media_type="application/json")
