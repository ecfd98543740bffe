"""Endpoints of SGLang and OpenAI that are not served here, each with the reason.

`http_errors` looks here when it answers 404.
"""

from __future__ import annotations

from collections.abc import Mapping

_GENERATES = "the models of a deployment generate text together, and do nothing else"
_FROM_DISK = "weights come from disk, by POST /update_weights_from_disk"
_MEMORY = "weights and KV pools stay where they are; stop the server to free memory"
_LORA = "adapters are not served: a request visits several models, and each would need its own"
_SESSIONS = "send the whole prompt again: what is known of it is found in the prefix caches"
_CONFIGURED = "the configuration of a running server does not change; see /get_server_info"
_EXPERTS = "expert distributions are not recorded"

REASONS: Mapping[str, str] = {
    "/v1/embeddings": _GENERATES,
    "/encode": _GENERATES,
    "/classify": _GENERATES,
    "/v1/rerank": _GENERATES,
    "/v1/score": "scores need the probabilities of prompts, which are not kept",
    "/v1/responses": "use /v1/chat/completions, which keeps nothing between requests",
    "/generate_from_file": "it takes embeddings, and the models of a request have none in common",
    "/vertex_generate": "use /generate or /v1/chat/completions",
    "/update_weights_from_tensor": _FROM_DISK,
    "/update_weights_from_distributed": _FROM_DISK,
    "/init_weights_update_group": _FROM_DISK,
    "/get_weights_by_name": "weights are not handed out",
    "/release_memory_occupation": _MEMORY,
    "/resume_memory_occupation": _MEMORY,
    "/load_lora_adapter": _LORA,
    "/unload_lora_adapter": _LORA,
    "/open_session": _SESSIONS,
    "/close_session": _SESSIONS,
    "/set_internal_state": _CONFIGURED,
    "/configure_logging": _CONFIGURED,
    "/slow_down": _CONFIGURED,
    "/freeze_gc": "every process has frozen its garbage collector before it began to serve",
    "/start_expert_distribution_record": _EXPERTS,
    "/stop_expert_distribution_record": _EXPERTS,
    "/dump_expert_distribution_record": _EXPERTS,
}


def reason_against(path: str) -> str:
    """What to tell a client that asked for ``path``."""
    known = next((each for each in REASONS if path == each or path.startswith(f"{each}/")), None)
    if known is None:
        return f"{path} is not served here; see /docs"
    return f"{path} is not served here: {REASONS[known]}"
