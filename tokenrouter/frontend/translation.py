"""Between SGLang's words and ours: sampling parameters on the way out, failures on the way in."""

from __future__ import annotations

import re
from typing import Any

from tokenrouter.errors import (
    MemberDeadError,
    OverloadedError,
    RequestError,
    RoutingError,
    TokenRouterError,
)
from tokenrouter.frontend.constraints import KINDS
from tokenrouter.frontend.exchange import Exchange
from tokenrouter.ipc.messages import Grammar, Sampling
from tokenrouter.subserver.sglang_compat.serving import TOP_K_ALL, SamplingParams

MAX_ID = 2**31
"""Beyond every vocabulary."""
_TOOL = re.compile(r"(tools\[\d+\]\.function\.parameters): ")


def sampling_of(
    params: SamplingParams,
    seed: int | None = None,
    logprobs: int | None = None,
    calls: str | None = None,
) -> Sampling:
    """SGLang's normalised parameters, as far as homes and engines need them.

    What no model can have is cut off: more candidates than SGLang's "all of them", and stop
    ids that no vocabulary holds. SGLang keeps ``seed`` (of the draws) and ``logprobs`` (how
    many alternatives to report; None: no probabilities) elsewhere or not at all; it has no kind
    of grammar for ``calls``.
    """
    stop_token_ids = params.stop_token_ids or ()
    return Sampling(
        max_new_tokens=params.max_new_tokens,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=min(params.top_k, TOP_K_ALL),
        min_p=params.min_p,
        stop=tuple(params.stop_strs),
        stop_token_ids=tuple(sorted(each for each in stop_token_ids if 0 <= each < MAX_ID)),
        ignore_eos=params.ignore_eos,
        skip_special_tokens=params.skip_special_tokens,
        spaces_between_special_tokens=params.spaces_between_special_tokens,
        no_stop_trim=params.no_stop_trim,
        min_new_tokens=params.min_new_tokens,
        frequency_penalty=params.frequency_penalty,
        presence_penalty=params.presence_penalty,
        repetition_penalty=params.repetition_penalty,
        logit_bias={int(each): bias for each, bias in (params.logit_bias or {}).items()},
        seed=seed,
        grammar=_grammar_of(params) if calls is None else Grammar("calls", calls),
        logprobs=logprobs,
    )


def _grammar_of(params: SamplingParams) -> Grammar | None:
    """What the output must match, in the order in which SGLang looks for it."""
    if params.json_schema is not None:
        return Grammar("json_schema", params.json_schema)
    if params.regex is not None:
        return Grammar("regex", params.regex)
    if params.ebnf is not None:
        return Grammar("ebnf", params.ebnf)
    if params.structural_tag is not None:
        return Grammar("structural_tag", params.structural_tag)
    return None


def failure_of(finish: dict[str, Any] | None, exchange: Exchange) -> TokenRouterError | None:
    """What a home says by ending a request with an HTTP status; names fields of ``exchange``."""
    if not finish or finish.get("type") != "abort" or "status_code" not in finish:
        return None
    status = int(finish["status_code"])
    message = str(finish.get("message", "the request failed"))
    refusals: dict[int, type[RequestError]] = {400: RequestError, 429: OverloadedError}
    if refusal := refusals.get(status):
        return refusal(*_in_words_of(exchange, message, finish.get("field")))
    return (MemberDeadError if status == 503 else RoutingError)(message)


def _in_words_of(exchange: Exchange, message: str, own: str | None) -> tuple[str, str | None]:
    """A member's complaint, and the client's field where it is about the member's field ``own``."""
    if own is None:
        return message, None
    bare = message.removeprefix(f"{own}: ")
    if own == "algorithm":
        return f"{exchange.algorithm_field}: {bare}", exchange.algorithm_field
    if own == "calls" and (tool := _TOOL.match(bare)):
        return bare, tool[1]
    field = exchange.grammar_field or own
    kind = field.rpartition(".")[2]
    if kind in KINDS:  # of one prompt; another one of a batch may have another
        field, message = field.removesuffix(kind) + own, bare
    elif own == "calls":  # which means nothing to the client
        message = bare
    return f"{field}: {message}", field
