"""Routing problems through the offline engine; each setting once, as results are kept in files."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
from quality_methods import Method
from quality_points import Point, from_json, to_json

from tokenrouter import Engine
from tokenrouter.demo.batches import ASSISTANT_ID, USER_ID
from tokenrouter.demo.evaluate import MAX_ANSWER_TOKENS, result_of
from tokenrouter.demo.recipes import MODELS_FOLDER
from tokenrouter.demo.splits import for_judging, for_thresholds
from tokenrouter.demo.task import Problem
from tokenrouter.demo.tokenizer import END_ID

SPLITS: Mapping[str, Callable[[int], list[Problem]]] = {
    "thresholds": for_thresholds,
    "judging": for_judging,
}
WEIGHTS = ".safetensors"
SECONDS = 0.03
"""Of a problem, before any was measured."""
STREAMED, STREAMS = 48, 8
"""Problems that are streamed, and how many at once."""
START_S = 6.0
"""Of an engine, about."""


class OutOfTime(Exception):
    """What was to be measured does not fit the time that is left."""


class Lab:
    """Measures settings until ``deadline`` (monotonic); one engine at a time."""

    def __init__(self, folder: Path, deadline: float) -> None:
        self.folder = folder / _digest(sorted(MODELS_FOLDER.glob(f"*/*{WEIGHTS}")))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._deadline = deadline
        self._seconds = SECONDS
        self._engine: Engine | None = None
        self._serves = ""

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def measure(
        self,
        method: Method,
        threshold: float | None,
        split: str,
        count: int,
        target: float | None = None,
    ) -> Point:
        """The first ``count`` problems of a split, all asked at once.

        Raises:
            OutOfTime: there is too little left.
        """

        def run() -> dict[str, Any]:
            asked = SPLITS[split](count)
            engine = self.engine(method)
            before, began = passes(engine), time.monotonic()
            answers = self.ask(method, [prompt(each) for each in asked], threshold)
            seconds = time.monotonic() - began
            after = passes(engine)
            spent = {name: after[name] - before[name] for name in after}
            point = judged(method.name, threshold, asked, answers)
            return to_json(point) | {"seconds": seconds, "passes": spent}

        stored = self.kept([_identity(method), split, count, threshold], count, run)
        return from_json({**stored, "method": method.name, "target": target})

    def streaming(self, method: Method, threshold: float | None) -> Mapping[str, float]:
        """How answers come piece by piece: see `streamed`."""

        def run() -> dict[str, float]:
            bodies = [
                self._body(method, threshold) | {"input_ids": prompt(each)}
                for each in for_judging(STREAMED)
            ]
            return asyncio.run(streamed(self.engine(method), bodies))

        key = ["streaming", _identity(method), threshold]
        return self.kept(key, STREAMED * 2, run)

    def ask(
        self, method: Method, prompts: Sequence[Sequence[int]], threshold: float | None = None
    ) -> list[dict[str, Any]]:
        """Greedy answers to all, asked at once."""
        body = self._body(method, threshold)
        answers: list[dict[str, Any]] = self.engine(method).generate(
            input_ids=list(prompts), **body
        )
        return answers

    def engine(self, method: Method) -> Engine:
        """That serves a method; started if the last one served another."""
        wanted = json.dumps(_deployed(method))
        if self._engine is None or self._serves != wanted:
            self._stop()
            given = {"algorithm": method.algorithm, "algorithm_args": dict(method.args)}
            # Some algorithms have no default; where there is a scale, requests bring their own.
            threshold = method.scale.high if method.scale else method.threshold
            if threshold is not None:
                given["router_threshold"] = threshold
            self._engine = Engine(demo=True, **given)
            self._serves = wanted
        return self._engine

    def kept(self, key: Sequence[Any], problems: int, run: Callable[[], Any]) -> Any:
        """What ``run`` gives, from its file if it ran before.

        Raises:
            OutOfTime: it did not, and takes too long for so many ``problems``.
        """
        digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=8).hexdigest()
        path = self.folder / f"{digest}.json"
        if path.exists():
            return json.loads(path.read_text())["found"]
        if time.monotonic() + START_S + problems * self._seconds > self._deadline:
            raise OutOfTime
        began = time.monotonic()
        found = run()
        self._seconds = (time.monotonic() - began) / problems
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({"key": key, "found": found}))
        partial.replace(path)
        return found

    def _body(self, method: Method, threshold: float | None) -> dict[str, Any]:
        model = method.model if threshold is None else f"{method.model}@{threshold!r}"
        sampling = {"temperature": 0.0, "max_new_tokens": MAX_ANSWER_TOKENS}
        return {"model": model, "sampling_params": sampling}

    def _stop(self) -> None:
        if self._engine is not None:
            self._engine.shutdown()
            self._engine = None


def prompt(problem: Problem) -> list[int]:
    """The ids of the chat that asks it."""
    return [USER_ID, *problem.question.encode(), END_ID, ASSISTANT_ID]


def judged(
    method: str,
    threshold: float | None,
    asked: Sequence[Problem],
    answers: Sequence[Mapping[str, Any]],
) -> Point:
    """Answers by what `tokenrouter.demo.evaluate` calls wholly right, and the right result."""
    pairs = list(zip(asked, answers, strict=True))
    routed = [each["meta_info"]["routing"]["tokens"] for each in answers]
    return Point(
        method,
        threshold,
        None,
        exact=numpy.array([float(text["text"] == problem.answer) for problem, text in pairs]),
        result=numpy.array(
            [float(result_of(text["text"]) == problem.result) for problem, text in pairs]
        ),
        tokens=numpy.array([float(each["meta_info"]["completion_tokens"]) for each in answers]),
        large=numpy.array([float(each.get("large", 0)) for each in routed]),
    )


def passes(engine: Engine) -> dict[str, int]:
    """By model: requests in each of its steps so far, summed."""
    return {
        model["name"]: sum(int(size) * count for size, count in model["state"]["batches"].items())
        for model in engine.server_info()["models"]
    }


async def streamed(engine: Engine, bodies: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over all chunks of all answers, `STREAMS` at once.

    Returns:
        ``first_ms``: until the first chunk; ``chunk_tokens``: tokens a chunk; ``longest_chunk``:
        mean over the answers of the longest one's tokens; ``wait_ms``: that a token was waited
        for since the chunk before, mean over tokens.
    """
    firsts: list[float] = []
    longest: list[int] = []
    sizes: list[int] = []
    waits: list[float] = []
    turn = asyncio.Semaphore(STREAMS)

    async def one(body: Mapping[str, Any]) -> None:
        async with turn:
            last, written, own = time.monotonic(), 0, []
            async for answer in await engine.async_generate(stream=True, **body):
                now = time.monotonic()
                size = answer["meta_info"]["completion_tokens"] - written
                if size:
                    written += size
                    own.append(size)
                    if len(own) == 1:
                        firsts.append(now - last)
                    else:
                        waits.extend([now - last] * size)
                    last = now
            sizes.extend(own)
            longest.append(max(own))

    await asyncio.gather(*(one(body) for body in bodies))
    return {
        "first_ms": 1e3 * float(numpy.mean(firsts)),
        "chunk_tokens": float(numpy.mean(sizes)),
        "longest_chunk": float(numpy.mean(longest)),
        "wait_ms": 1e3 * float(numpy.mean(waits)) if waits else 0.0,
    }


def _identity(method: Method) -> list[Any]:
    files = [Path(each) for each in method.args.values() if str(each).endswith(WEIGHTS)]
    return [*_deployed(method), method.model, _digest(files)]


def _deployed(method: Method) -> list[Any]:
    """What its engine is started with."""
    return [method.algorithm, dict(method.args), method.threshold]


def _digest(weights: Sequence[Path]) -> str:
    """What other weights gave is not taken for what these give."""
    digest = hashlib.blake2b(digest_size=6)
    for path in weights:
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()
