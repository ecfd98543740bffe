"""Log probabilities in chats: of every token, also where several arrive at once.

SGLang's stream drops those of tokens that complete no character, of reasoning and of tool
calls, and gives all tokens of an event the alternatives of the first. Here its events come
without any, and each gets those of the tokens written since the last one that had some.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson

from tokenrouter.frontend.exchange import Exchange

START, END = "data: ", "\n\n"


async def with_logprobs(events: AsyncIterator[str], exchange: Exchange) -> AsyncIterator[str]:
    """SGLang's ``events`` of ``exchange``, with log probabilities."""
    told: dict[int, int] = {}
    async for event in events:
        if not event.startswith(START + "{"):
            yield event
            continue
        content = orjson.loads(event.removeprefix(START))
        changed = [_complete(choice, exchange, told) for choice in content["choices"]]
        yield START + orjson.dumps(content).decode() + END if any(changed) else event


def token_logprobs(meta: dict[str, Any], start: int) -> list[dict[str, Any]]:
    """OpenAI's entries for the output tokens from ``start`` on, of SGLang's ``meta_info``."""
    tokens = meta["output_token_logprobs"][start:]
    alternatives = meta["output_top_logprobs"][start:] or [()] * len(tokens)
    return [
        {**_entry(token), "top_logprobs": [_entry(each) for each in top]}
        for token, top in zip(tokens, alternatives, strict=True)
    ]


def _complete(choice: dict[str, Any], exchange: Exchange, told: dict[int, int]) -> bool:
    """Give ``choice`` what its text stands for; whether there was something."""
    index, delta = choice["index"], choice["delta"]
    says = any(delta.get(part) for part in ("content", "reasoning_content", "tool_calls"))
    if not says and choice["finish_reason"] is None:
        return False
    entries = token_logprobs(exchange.latest[index], told.get(index, 0))
    told[index] = told.get(index, 0) + len(entries)
    if entries:
        choice["logprobs"] = {"content": entries}
    return bool(entries)


def _entry(token: tuple[float, int, str]) -> dict[str, Any]:
    logprob, _, text = token
    return {"token": text, "bytes": list(text.encode()), "logprob": logprob}
