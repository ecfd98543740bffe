"""Clients of every kind: patient, impatient, confused and broken. Each answer is checked.

A `Client` draws what it does from its own generator, so that a run can be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import string
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from tests.soak.oracle import Oracle

PATIENCE = aiohttp.ClientTimeout(total=90)
EXCUSED = (aiohttp.ClientError, ConnectionError)
"""What a client sees when the front end dies."""
LETTERS = string.ascii_letters + string.digits + " .,"


@dataclass
class Load:
    """Many clients of one server for some time.

    ``models``: what they ask for. ``counts``: what happened, by kind. ``faults``: processes
    are being killed, so that a request may end with 503, or its connection; it is counted
    and given up, and its client goes on. ``flying``: the requests that wait for an answer,
    with the model they asked for.
    """

    url: str
    oracle: Oracle
    models: Sequence[str]
    context_length: int
    tokens: tuple[int, int] = (1, 40)
    faults: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    flying: dict[int, str] = field(default_factory=dict)
    _stop: float = 0.0
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @contextlib.contextmanager
    def request(self, model: str) -> Iterator[None]:
        """The time that one request is under way; it may end by a fault."""
        number = next(self._numbers)
        self.flying[number] = model
        try:
            yield
        except EXCUSED as error:
            if not self.faults:
                raise
            self.counts[type(error).__name__] += 1
            self.counts["failed"] += 1
        finally:
            del self.flying[number]

    async def run(self, clients: int, seconds: float, seed: int) -> None:
        """Until the time is over and every client is done; the first mistake is raised."""
        self._stop = asyncio.get_running_loop().time() + seconds
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(self.url, connector=connector, timeout=PATIENCE) as session,
            asyncio.TaskGroup() as group,
        ):
            for number in range(clients):
                client = Client(self, session, random.Random(f"{seed} {number}"))
                group.create_task(client.run())

    def stop(self) -> None:
        """Let clients finish what they do, and begin nothing more."""
        self._stop = 0.0

    @property
    def stopped(self) -> bool:
        """Whether the time is over."""
        return asyncio.get_running_loop().time() >= self._stop


class StreamError(aiohttp.ClientError):
    """An error arrived as the last event of a stream."""


class Client:
    """Does one thing after the other."""

    def __init__(self, load: Load, session: aiohttp.ClientSession, rng: random.Random) -> None:
        self.load, self.session, self.rng = load, session, rng
        self.actions: Mapping[Callable[[], Awaitable[None]], float] = {
            self.generate: 4,
            self.generate_stream: 4,
            self.generate_batch: 1,
            self.complete: 2,
            self.complete_stream: 2,
            self.chat: 1,
            self.chat_stream: 1,
            self.leave: 3,
            self.leave_stream: 3,
            self.abort: 1,
            self.hang_up_half_way: 1,
            self.too_long: 1,
            self.bad_body: 2,
            self.look: 0.3,
        }

    async def run(self) -> None:
        """Act until the time is over."""
        await asyncio.sleep(self.rng.random())
        while not self.load.stopped:
            (action,) = self.rng.choices(list(self.actions), list(self.actions.values()))
            failures = self.load.counts["failed"]
            await action()
            self.load.counts[action.__name__] += 1
            if self.load.counts["failed"] > failures:
                await asyncio.sleep(0.2)  # as somebody who tries again

    # Patient clients: every answer is compared.

    async def generate(self) -> None:
        model, prompt, count = self._draw()
        stop = self._stop()
        body = _native(model, prompt, count, stop)
        answer = await self._post("/generate", body)
        if answer is not None:
            self._check_native(answer, model, prompt, count, stop)

    async def generate_stream(self) -> None:
        model, prompt, count = self._draw()
        stop = self._stop()
        ids: list[int] = []
        last: dict[str, Any] = {}
        async for event in self._stream("/generate", _native(model, prompt, count, stop)):
            ids += event["output_ids"]
            last = event
        if last and last["meta_info"]["finish_reason"]:
            self._check_native({**last, "output_ids": ids}, model, prompt, count, stop)

    async def generate_batch(self) -> None:
        model, _, count = self._draw()
        prompts = [self._prompt() for _ in range(3)]
        body = {**_native(model, [], count), "input_ids": prompts}
        answers = await self._post("/generate", body)
        for prompt, answer in zip(prompts, answers or (), strict=bool(answers)):
            self._check_native(answer, model, prompt, count)

    async def complete(self) -> None:
        model, prompt, count = self._draw()
        n = self.rng.randint(1, 3)
        body = {"model": model, "prompt": bytes(prompt).decode(), "max_tokens": count, "n": n}
        answer = await self._post("/v1/completions", body)
        if answer is not None:
            self._check_choices([c["text"] for c in answer["choices"]], model, prompt, count, n)
            assert answer["usage"]["completion_tokens"] == n * count

    async def complete_stream(self) -> None:
        model, prompt, count = self._draw()
        texts = [""]
        body = {"model": model, "prompt": prompt, "max_tokens": count}
        finish = None
        async for event in self._stream("/v1/completions", body):
            for choice in event["choices"]:
                texts[choice["index"]] += choice["text"]
                finish = choice["finish_reason"] or finish
        if finish:
            self._check_choices(texts, model, prompt, count)

    async def chat(self) -> None:
        model, content, count = self._draw_chat()
        body = {"model": model, "messages": content, "max_tokens": count}
        answer = await self._post("/v1/chat/completions", body)
        if answer is not None:
            texts = [choice["message"]["content"] for choice in answer["choices"]]
            self._check_choices(texts, model, self._chat_ids(content), count)

    async def chat_stream(self) -> None:
        model, content, count = self._draw_chat()
        texts, finish = [""], None
        body = {"model": model, "messages": content, "max_tokens": count}
        async for event in self._stream("/v1/chat/completions", body):
            for choice in event["choices"]:
                texts[choice["index"]] += choice["delta"].get("content") or ""
                finish = choice["finish_reason"] or finish
        if finish:
            self._check_choices(texts, model, self._chat_ids(content), count)

    async def look(self) -> None:
        with self.load.request(""):
            async with self.session.get("/get_server_info") as answer:
                assert self._excused(answer.status) or answer.status == 200, answer.status

    # Clients that leave.

    async def leave(self) -> None:
        model, prompt, count = self._draw()
        body = _native(model, prompt, 10 * count)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.rng.random() * 0.3):
                await self._post("/generate", body)

    async def leave_stream(self) -> None:
        model, prompt, count = self._draw()
        events = self.rng.randint(0, 8)
        answers = self._stream("/v1/completions", {
            "model": model, "prompt": prompt, "max_tokens": 10 * count, "n": 2
        })  # fmt: skip
        async with contextlib.aclosing(answers):
            async for _ in answers:
                events -= 1
                if events < 0:
                    return

    async def abort(self) -> None:
        model, prompt, count = self._draw()
        rid = f"abort-{self.rng.random()}"
        work = asyncio.create_task(
            self._post("/generate", {**_native(model, prompt, 10 * count), "rid": rid})
        )
        await asyncio.sleep(self.rng.random() * 0.3)
        with self.load.request(""):
            async with self.session.post("/abort_request", json={"rid": rid}) as answer:
                assert self._excused(answer.status) or answer.status == 200, answer.status
        if (answered := await work) is not None:
            kind = answered["meta_info"]["finish_reason"]["type"]
            assert kind in ("abort", "length"), answered

    async def hang_up_half_way(self) -> None:
        host, _, port = self.load.url.removeprefix("http://").partition(":")
        with contextlib.suppress(ConnectionError):  # it may be gone, and may not mind
            _, writer = await asyncio.open_connection(host, int(port))
            head = b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
            whole = head + b'{"text": "abc'
            writer.write(whole[: self.rng.randrange(len(whole))])
            await asyncio.sleep(self.rng.random() * 0.2)
            writer.close()
            await writer.wait_closed()

    # Clients in the wrong.

    async def too_long(self) -> None:
        model, _, count = self._draw()
        if self.rng.random() < 0.5:
            prompt = [7] * (self.load.context_length + 1 - self.rng.randrange(count))
        else:
            prompt = [7] * 10
            count = self.load.context_length
        await self._refused("/generate", _native(model, prompt, count), 400)

    async def bad_body(self) -> None:
        path, body, status = self.rng.choice(BAD_BODIES)
        await self._refused(path, body, status)

    def _prompt(self) -> list[int]:
        length = self.rng.choice((1, 5, 20, 100))
        return list("".join(self.rng.choices(LETTERS, k=length)).encode())

    def _draw(self) -> tuple[str, list[int], int]:
        count = self.rng.randint(*self.load.tokens)
        return self.rng.choice(self.load.models), self._prompt(), count

    def _draw_chat(self) -> tuple[str, list[dict[str, str]], int]:
        model, prompt, count = self._draw()
        return model, [{"role": "user", "content": bytes(prompt).decode()}], count

    def _chat_ids(self, messages: list[dict[str, str]]) -> list[int]:
        return self.load.oracle.chat(messages[0]["content"])

    def _stop(self) -> str:
        return self.rng.choice(LETTERS[:-3]) * self.rng.randint(1, 2) if self._often() else ""

    def _often(self) -> bool:
        return self.rng.random() < 0.3

    def _check_native(
        self, answer: Any, model: str, prompt: list[int], count: int, stop: str = ""
    ) -> None:
        expected = self.load.oracle.answer(model, prompt, count, stop)
        found = (answer["output_ids"], answer["text"], answer["meta_info"]["finish_reason"]["type"])
        assert found == (expected.ids, expected.text, expected.finish), (model, prompt, answer)
        self.load.counts["exact"] += 1

    def _check_choices(
        self, texts: Sequence[str], model: str, prompt: list[int], count: int, n: int = 1
    ) -> None:
        expected = [self.load.oracle.answer(model, prompt, count, sample=i).text for i in range(n)]
        assert list(texts) == expected, (model, prompt, count)
        self.load.counts["exact"] += n

    async def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer; None if the server is excused."""
        with self.load.request(body["model"]):
            async with self.session.post(path, json=body) as answer:
                content = orjson.loads(await answer.read())
                if self._excused(answer.status):
                    return None
                assert answer.status == 200, (path, body, content)
                return content
        return None

    async def _stream(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[Any]:
        with self.load.request(body["model"]):
            async with self.session.post(path, json={**body, "stream": True}) as answer:
                if self._excused(answer.status):
                    return
                assert answer.status == 200, (path, body, await answer.read())
                async for line in answer.content:
                    data = line.removeprefix(b"data: ").strip()
                    if data == b"[DONE]":
                        return
                    if not data:
                        continue
                    event = orjson.loads(data)
                    if "error" in event:
                        raise StreamError(event)
                    yield event
                raise aiohttp.ClientPayloadError(f"a stream without its end: {path} {body}")

    def _excused(self, status: int) -> bool:
        """Whether this is what a request gets that a fault has hit."""
        excused = self.load.faults and status == 503
        if excused:
            self.load.counts["status 503"] += 1
            self.load.counts["failed"] += 1
        return excused

    async def _refused(self, path: str, body: Any, status: int) -> None:
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        headers = {"Content-Type": "application/json"}
        with self.load.request(""):
            async with self.session.post(path, data=data, headers=headers) as answer:
                content = orjson.loads(await answer.read())
                if not self._excused(answer.status):
                    assert answer.status == status, (path, data[:300], content)
                    assert content["error"]["message"], content


BAD_BODIES: Sequence[tuple[str, Any, int]] = (
    ("/generate", b'{"text": ', 400),
    ("/generate", b"\xff\xfe", 400),
    ("/generate", [], 400),
    ("/generate", {"text": 5}, 400),
    ("/generate", {"text": "a", "input_ids": [1]}, 400),
    ("/generate", {"input_ids": [10**9]}, 400),
    ("/generate", {"text": ""}, 400),
    ("/generate", {"text": "a", "unknown": 1}, 400),
    ("/generate", {"text": "a", "model": "nobody"}, 404),
    ("/v1/completions", {"prompt": "a", "n": 0}, 400),
    ("/v1/completions", {"prompt": "a", "max_tokens": -1}, 400),
    ("/v1/chat/completions", {"messages": []}, 400),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "top_p": 7}, 400),
    ("/nowhere", {}, 404),
)


def _native(model: str, prompt: Sequence[int], count: int, stop: str = "") -> dict[str, Any]:
    sampling: dict[str, Any] = {"max_new_tokens": count}
    if stop:
        sampling["stop"] = [stop]
    return {"model": model, "input_ids": prompt, "sampling_params": sampling}
