"""Between SGLang's words and ours: sampling parameters on the way out, failures on the way in."""

from __future__ import annotations

from typing import Any

from tokenrouter.errors import MemberDeadError, RequestError, RoutingError, TokenRouterError
from tokenrouter.ipc.messages import Sampling
from tokenrouter.subserver.sglang_compat.serving import SamplingParams


def sampling_of(params: SamplingParams) -> Sampling:
    """SGLang's normalised parameters, as far as homes and engines need them."""
    return Sampling(
        max_new_tokens=params.max_new_tokens,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        stop=tuple(params.stop_strs),
        stop_token_ids=tuple(sorted(params.stop_token_ids or ())),
        ignore_eos=params.ignore_eos,
        skip_special_tokens=params.skip_special_tokens,
        spaces_between_special_tokens=params.spaces_between_special_tokens,
        no_stop_trim=params.no_stop_trim,
    )


def failure_of(finish: dict[str, Any] | None) -> TokenRouterError | None:
    """What a home says by ending a request with an HTTP status."""
    if not finish or finish.get("type") != "abort" or "status_code" not in finish:
        return None
    status = int(finish["status_code"])
    kinds: dict[int, type[TokenRouterError]] = {400: RequestError, 503: MemberDeadError}
    return kinds.get(status, RoutingError)(str(finish.get("message", "the request failed")))
