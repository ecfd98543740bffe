"""Between SGLang's words and ours: sampling parameters on the way out, failures on the way in."""

from __future__ import annotations

from typing import Any

from tokenrouter.errors import MemberDeadError, RequestError, RoutingError, TokenRouterError
from tokenrouter.ipc.messages import Sampling
from tokenrouter.subserver.sglang_compat.serving import TOP_K_ALL, SamplingParams

MAX_ID = 2**31
"""Beyond every vocabulary."""


def sampling_of(params: SamplingParams) -> Sampling:
    """SGLang's normalised parameters, as far as homes and engines need them.

    What no model can have is cut off: more candidates than SGLang's "all of them", and stop
    ids that no vocabulary holds.
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
    )


def failure_of(finish: dict[str, Any] | None) -> TokenRouterError | None:
    """What a home says by ending a request with an HTTP status."""
    if not finish or finish.get("type") != "abort" or "status_code" not in finish:
        return None
    status = int(finish["status_code"])
    kinds: dict[int, type[TokenRouterError]] = {400: RequestError, 503: MemberDeadError}
    return kinds.get(status, RoutingError)(str(finish.get("message", "the request failed")))
