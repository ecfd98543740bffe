"""Asks another model whether the small model's tokens change the meaning, as R2R did.

At each token in question the large model goes on from the small model's token for about two
sentences, and the judge compares that with what the large model wrote by itself.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import torch

from tokenrouter.errors import MeasurementError
from tokenrouter.router_training.collecting import Answers, Shards, file_of, generate
from tokenrouter.router_training.labels import divergences
from tokenrouter.router_training.pair import Placement, digest, loaded, padding_of

CONTINUATION_TOKENS = 64
CONTEXT_CHARACTERS = 4000
SENTENCES = 2
SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n+")
VERDICT = re.compile(r"\b(same|different)\b", re.IGNORECASE)
TRIES = 5
PAUSE_S = 0.5
"""Before the second try; twice as long before each further one."""
ANSWER_LIMIT_S = 300.0
QUESTION = """\
A text was continued in two ways. Do both continuations mean the same for what follows? Other words,
another order, or another style of the same content mean the same. Another fact, number, step of a
calculation, conclusion or plan is different. One may break off earlier: compare what both cover.

<text>
{context}
</text>
<first>
{first}
</first>
<second>
{second}
</second>

Answer with one word: same or different."""


@dataclass(frozen=True)
class Judge:
    """An OpenAI-compatible server (its URL, which ends before /chat/completions) and a model."""

    url: str
    model: str
    api_key: str | None = None
    at_once: int = 8


@dataclass(frozen=True)
class Dispute:
    """The end of what both models read, and the continuations from the token of each."""

    context: str
    large: str
    small: str


def disputes_of(epsilon: float, shard: int) -> str:
    """The name of a shard's disputes in the store."""
    return f"disputes_{epsilon:g}/{shard:05d}.json"


def judgements_of(judge: Judge, epsilon: float, shard: int) -> str:
    """The name of a shard's judgements in the store."""
    return f"judgements_{epsilon:g}_{digest(judge.model)[:8]}/{shard:05d}.json"


def judged(
    shards: Shards, shard: int, found: torch.Tensor, judge: Judge, epsilon: float
) -> torch.Tensor:
    """``found`` divergences [n], without those that the judge said mean the same."""
    text = shards.store.path(judgements_of(judge, epsilon, shard)).read_text()
    labels = found.clone()
    labels[found] = torch.tensor(json.loads(text), dtype=torch.bool)
    return labels


def collect_continuations(
    shards: Shards, large: Path, placement: Placement, tokenizer: Any, epsilon: float
) -> None:
    """Both continuations of every token in question."""
    names = [disputes_of(epsilon, shard) for shard in range(len(shards))]
    missing = [shard for shard, name in enumerate(names) if not shards.store.has(name)]
    if not missing:
        return
    with loaded(large, placement) as model:
        for shard in shards.bars.track(missing, description="continuations"):
            disputes = _disputes(shards, shard, model, tokenizer, epsilon)
            content = json.dumps([vars(each) for each in disputes])
            shards.store.write_text(names[shard], content)


def _disputes(
    shards: Shards, shard: int, model: Any, tokenizer: Any, epsilon: float
) -> list[Dispute]:
    read = shards.answers(shard)
    tokens = shards.store.arrays(file_of("features", shard))["token"].tolist()
    found = divergences(shards, shard, epsilon).nonzero()[:, 0].tolist()
    disputes = []
    for start in range(0, len(found), shards.size):
        group = [(*_around(read, at), tokens[at]) for at in found[start : start + shards.size]]
        starts = [[*before, token] for before, _, token in group]
        others = generate(model, starts, padding_of(tokenizer), CONTINUATION_TOKENS)
        for (before, own, token), other in zip(group, others, strict=True):
            context = tokenizer.decode(before)[-CONTEXT_CHARACTERS:]
            first = two_sentences(tokenizer.decode(own[: CONTINUATION_TOKENS + 1]))
            second = two_sentences(tokenizer.decode([token, *other]))
            disputes.append(Dispute(context, first, second))
    return disputes


def _around(read: Answers, position: int) -> tuple[list[int], list[int]]:
    """The tokens before a position of a shard, and the answer from there on."""
    for prompt, answer in zip(read.prompts, read.answers, strict=True):
        if position < len(answer):
            return prompt + answer[:position], answer[position:]
        position -= len(answer)
    raise ValueError(f"no answer has position {position}")


def two_sentences(text: str) -> str:
    """The beginning of a text, up to the end of its second sentence or of its second line."""
    ends = [match.end() for match in SENTENCE_END.finditer(text) if text[: match.end()].strip()]
    return text[: ends[SENTENCES - 1]] if len(ends) >= SENTENCES else text


def collect_judgements(shards: Shards, judge: Judge, epsilon: float) -> None:
    """The judge's verdict on every dispute: whether its meaning differs.

    Raises:
        MeasurementError: the judge cannot be asked.
    """
    names = [judgements_of(judge, epsilon, shard) for shard in range(len(shards))]
    missing = [shard for shard, name in enumerate(names) if not shards.store.has(name)]
    for shard in shards.bars.track(missing, description="judging"):
        content = json.loads(shards.store.path(disputes_of(epsilon, shard)).read_text())
        verdicts = asyncio.run(verdicts_on([Dispute(**each) for each in content], judge))
        shards.store.write_text(names[shard], json.dumps(verdicts))


async def verdicts_on(disputes: list[Dispute], judge: Judge) -> list[bool]:
    """Whether the meaning of each differs, some asked at once."""
    headers = {"Authorization": f"Bearer {judge.api_key}"} if judge.api_key else {}
    turns = asyncio.Semaphore(judge.at_once)
    async with httpx.AsyncClient(headers=headers, timeout=ANSWER_LIMIT_S) as client:

        async def ask(dispute: Dispute) -> bool:
            async with turns:
                return differs(await _answer(client, judge, dispute))

        return await asyncio.gather(*map(ask, disputes))


def differs(answer: str) -> bool:
    """The last verdict of an answer; without one, the large model had better write the token."""
    verdicts = VERDICT.findall(answer)
    return not verdicts or verdicts[-1].lower() == "different"


async def _answer(client: httpx.AsyncClient, judge: Judge, dispute: Dispute) -> str:
    question = QUESTION.format(context=dispute.context, first=dispute.large, second=dispute.small)
    body = {
        "model": judge.model,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
    }
    failure = ""
    for number in range(TRIES):
        if number:
            await asyncio.sleep(PAUSE_S * 2 ** (number - 1))
        try:
            response = await client.post(f"{judge.url.rstrip('/')}/chat/completions", json=body)
        except httpx.TransportError as error:
            failure = repr(error)
            continue
        if response.is_success:
            return _content(response, judge)
        failure = f"{response.status_code}: {response.text[:200]}"
        if response.status_code != httpx.codes.TOO_MANY_REQUESTS and response.is_client_error:
            break
    raise MeasurementError(
        f"--judge: {judge.url} does not answer ({failure}); the same command goes on where this "
        "one stopped"
    )


def _content(response: httpx.Response, judge: Judge) -> str:
    try:
        return str(response.json()["choices"][0]["message"]["content"])
    except (ValueError, LookupError, TypeError) as error:
        raise MeasurementError(
            f"--judge: {judge.url} answers no chat completion: {response.text[:200]}"
        ) from error
