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


def failure_of(
    finish: dict[str, Any] | None, grammar_field: str | None = None
) -> TokenRouterError | None:
    """What a home says by ending a request with an HTTP status.

    ``grammar_field``: what asked for the grammar, which alone a member may find to be wrong.
    """
    if not finish or finish.get("type") != "abort" or "status_code" not in finish:
        return None
    status = int(finish["status_code"])
    message = str(finish.get("message", "the request failed"))
    if status == 400:
        if grammar_field is None:
            return RequestError(message)
        message = message.removeprefix("calls: ")
        if tool := _TOOL.match(message):
            return RequestError(message, tool[1])
        own = grammar_field.rsplit(".", 1)[-1]  # a member calls it so
        return RequestError(f"{grammar_field}: {message.removeprefix(f'{own}: ')}", grammar_field)
    kinds: dict[int, type[TokenRouterError]] = {429: OverloadedError, 503: MemberDeadError}
    return kinds.get(status, RoutingError)(message)
