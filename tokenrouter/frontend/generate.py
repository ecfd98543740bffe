"""``/generate``, SGLang's native endpoint: text or ids, one prompt or many."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
from fastapi import Request, Response

from tokenrouter.config import Config
from tokenrouter.errors import RequestError
from tokenrouter.frontend import names
from tokenrouter.frontend.clients import DONE, EventStream, while_connected
from tokenrouter.frontend.constraints import check_grammar, grammar_field
from tokenrouter.frontend.exchange import Exchange
from tokenrouter.frontend.protocol import GenerateBody, SamplingBody
from tokenrouter.frontend.supported import check_fields
from tokenrouter.frontend.tokenizer_manager import RoutedTokenizerManager
from tokenrouter.subserver.sglang_compat.serving import GenerateReqInput


class Generate:
    """The endpoint. Its routing report is in ``meta_info``."""

    def __init__(self, manager: RoutedTokenizerManager, config: Config) -> None:
        self._manager = manager
        self._config = config

    async def respond(self, body: GenerateBody, client: Request) -> Response:
        """The HTTP response to ``body``.

        Raises:
            TokenRouterError: it is refused, or failed before its first token.
        """
        work = self._convert(body)
        exchange: Exchange = work.exchange
        self._manager.begin(exchange)
        answers = self._manager.generate_request(work)
        try:
            first = await while_connected(client, anext(answers))
        except BaseException:
            self._manager.finish(exchange)
            raise
        if not body.stream:
            self._manager.finish(exchange)
            return Response(orjson.dumps(first), media_type="application/json")
        return EventStream(_event(first), _rest(answers), lambda: self._manager.finish(exchange))

    def _convert(self, body: GenerateBody) -> GenerateReqInput:
        check_fields(body)
        route = names.resolve(body.model, names.seeded(body.routing, body.seed), self._config)
        prompt_field = "input_ids" if body.text is None else "text"
        length_field = "sampling_params.max_new_tokens"
        sampling, constrained = _sampling(body.sampling_params)
        check_grammar(self._config, route, sampling, constrained)
        samples = _first(sampling).get("n", 1)
        for name in ("return_logprob", "top_logprobs_num"):
            if samples > 1 and isinstance(getattr(body, name), list):
                raise RequestError(f"{name}: with n > 1, give one value for all prompts", name)
        choices = (body.prompts or 1) * samples
        client_id: Any = body.rid
        if choices > 1 and isinstance(body.rid, str):
            client_id = [f"{body.rid}_{i}" for i in range(choices)]
        elif isinstance(body.rid, list):
            client_id = [rid for rid in body.rid for _ in range(choices // len(body.rid))]
        work = GenerateReqInput(
            text=body.text,
            input_ids=body.input_ids,
            sampling_params=sampling,
            return_logprob=body.return_logprob,
            top_logprobs_num=body.top_logprobs_num,
            return_text_in_logprobs=body.return_text_in_logprobs,
            stream=body.stream,
        )
        work.exchange = Exchange(
            route,
            prompt_field,
            length_field,
            client_id,
            body.seed,
            choices,
            minimum_field="sampling_params.min_new_tokens",
            bias_field="sampling_params.logit_bias",
            grammar_field=constrained,
            algorithm_field=names.algorithm_field(body.routing),
        )
        return work


def _sampling(params: SamplingBody | list[SamplingBody] | None) -> tuple[Any, str | None]:
    """SGLang's parameters, and the field of a grammar among them."""
    if isinstance(params, list):
        each = [_sampling(one) for one in params]
        return [one for one, _ in each], next((field for _, field in each if field), None)
    params = params or SamplingBody()
    check_fields(params, "sampling_params.")
    field = grammar_field(params, "sampling_params.")
    given = params.model_fields_set & set(SamplingBody.model_fields)
    return params.model_dump(include=given), field


def _first(sampling: Any) -> dict[str, Any]:
    first: dict[str, Any] = sampling[0] if isinstance(sampling, list) else sampling
    return first


async def _rest(answers: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    async for answer in answers:
        yield _event(answer)
    yield DONE


def _event(answer: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(answer) + b"\n\n"
