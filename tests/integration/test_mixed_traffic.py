"""Several algorithms in one deployment at once, drafting ones among them: each answer, whole or
streamed, is what the plain loop writes, and says so.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.frontend.test_metrics import Scrape
from tests.integration.server import Server
from tests.plain_loop import Setting, Written, plain_loop
from tests.subserver.reference import TimedModel
from tokenrouter.demo.tokenizer import build_tokenizer
from tokenrouter.schedulers.registry import create
from tokenrouter.subserver.sglang_compat.vocabulary import TokenizerVocabulary, printable_ids

pytestmark = pytest.mark.timeout(120)

NAMES = ("small", "large")
LENGTH = 24
VOCABULARY = TokenizerVocabulary(build_tokenizer())
ALPHABET = printable_ids(build_tokenizer())
ALGORITHMS: dict[str, dict[str, Any]] = {
    "hindsight": {"algorithm": "entropy", "algorithm_args": {"verify": {"epsilon": 0.3}}},
    "bild": {"router_threshold": 0.2, "algorithm_args": {"rollback": 0.7}},
    "drafty": {
        "algorithm": "tests.subserver.algorithms:Drafty",
        "algorithm_args": {"limit": LENGTH},
    },
}
CONFIG = {
    "served_name": "demo",
    "algorithm": "entropy",
    "router_threshold": 0.5,
    "algorithms": ALGORITHMS,
    "max_wait_ms": 60_000,  # a stall shows instead of ending
    "models": [
        {"name": "small", "engine": "timed", "step_ms": 0.5, "threshold": 1},
        {"name": "large", "engine": "timed", "step_ms": 1.0, "threshold": 3},
    ],
}
ASKED = [
    *(("demo:" + name, name) for name in ALGORITHMS),
    ("demo:speculative", "speculative"),
    ("demo", "entropy"),
    ("demo:momentum@1.5", "momentum"),
    ("demo:random@0.35", "random"),
]
"""Model names, and what they mean."""


@dataclass(frozen=True)
class Job:
    """A request: ``name`` of the algorithm in ``model``, ``stop`` strings, ``length`` in tokens."""

    model: str
    name: str
    prompt: list[int]
    seed: int
    stop: tuple[str, ...] = ()
    length: int = LENGTH

    @property
    def settings(self) -> tuple[str, float | None, dict[str, Any]]:
        """Algorithm, threshold and arguments."""
        preset = ALGORITHMS.get(self.name, {})
        threshold = preset.get("router_threshold")
        if "@" in self.model:
            threshold = float(self.model.partition("@")[2])
        elif self.model == "demo":
            threshold = 0.5
        return preset.get("algorithm", self.name), threshold, preset.get("algorithm_args", {})

    def expected(self, sample: int = 0) -> Written:
        """What the plain loop writes."""
        algorithm, threshold, args = self.settings
        return plain_loop(
            [create(algorithm, NAMES, threshold, args) for _ in NAMES],
            [TimedModel(seed, ALPHABET) for seed in range(2)],
            self.prompt,
            self._ending,
            Setting(0, self.seed, sample, VOCABULARY),
        )

    def _ending(self, output: Sequence[int]) -> dict[str, Any] | None:
        if len(output) >= self.length:
            return {"type": "length", "length": self.length}
        text = VOCABULARY.decode(output)
        return next(({"type": "stop", "matched": s} for s in self.stop if s in text), None)

    def body(self, **more: Any) -> dict[str, Any]:
        sampling = {"max_new_tokens": self.length, "temperature": 0, "stop": list(self.stop)}
        return {
            "model": self.model,
            "input_ids": self.prompt,
            "sampling_params": {**sampling, "no_stop_trim": True, **more.pop("sampling", {})},
            "routing": {"token_models": True, "seed": self.seed},
            "return_logprob": True,
            **more,
        }


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(CONFIG) as server:
        yield server


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    """Four requests of each kind; half of them stop at two tokens that the answer has."""
    rng = random.Random(5)
    found = []
    for index, (model, name) in enumerate(ASKED * 4):
        prompt = [rng.choice(ALPHABET) for _ in range(rng.randint(1, 30))]
        job = Job(model, name, prompt, seed=index)
        if index % 2:
            whole = job.expected().tokens
            start = rng.randrange(4, len(whole) - 2)
            job = Job(model, name, prompt, index, (VOCABULARY.decode(whole[start : start + 2]),))
        found.append(job)
    return found


def answered(job: Job, want: Written, text: str, ids: Sequence[int], meta: Any) -> None:
    """Whether an answer is the one that was expected, in every respect."""
    assert (list(ids), meta["finish_reason"]) == (want.tokens, want.finish), job
    assert text == VOCABULARY.decode(want.tokens)
    routing = meta["routing"]
    assert routing["token_models"] == [NAMES[writer] for writer in want.writers], job
    assert routing["tokens"] == {n: want.writers.count(m) for m, n in enumerate(NAMES)}
    assert routing["hand_overs"] == want.hand_overs
    assert routing["algorithm"] == job.settings[0]
    assert routing.get("preset") == (None if job.model == "demo" else job.name)
    assert meta["completion_tokens"] == len(want.tokens)
    assert meta["llm_ratio"] == pytest.approx(want.writers.count(1) / len(want.tokens))
    assert [token for _, token, _ in meta["output_token_logprobs"]] == want.tokens


def test_every_answer_is_its_plain_loops(server: Server, jobs: list[Job]) -> None:
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda job: server.generate(**job.body()), jobs))
    drafts_taken_back = 0
    for job, answer in zip(jobs, answers, strict=True):
        want = job.expected()
        answered(job, want, answer["text"], answer["output_ids"], answer["meta_info"])
        drafts_taken_back += want.taken_back
    assert drafts_taken_back > 100
    stops = [answer["meta_info"]["finish_reason"]["type"] for answer in answers]
    assert stops.count("stop") == len(jobs) // 2
    server.assert_clean()
    scrape = Scrape(server.client.get("/metrics").text)
    for model, _ in ASKED:
        name = model.partition("@")[0]
        ended = [scrape.value("num_requests_total", model_name=name, outcome=outcome)
                 for outcome in ("stop", "length")]  # fmt: skip
        assert sum(ended) == 4, name


def test_streams_hold_nothing_that_is_taken_back(server: Server, jobs: list[Job]) -> None:
    def stream(job: Job) -> tuple[list[int], list[dict[str, Any]]]:
        ids: list[int] = []
        events = []
        with server.client.stream("POST", "/generate", json=job.body(stream=True)) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    events.append(json.loads(line.removeprefix("data: ")))
                    ids += events[-1]["output_ids"]
                    assert events[-1]["meta_info"]["completion_tokens"] == len(ids)
        return ids, events

    with ThreadPoolExecutor(12) as pool:
        streams = list(pool.map(stream, jobs))
    for job, (ids, events) in zip(jobs, streams, strict=True):
        want = job.expected()
        last = events[-1]
        answered(job, want, last["text"], ids, last["meta_info"])
        for event in events:
            assert last["text"].startswith(event["text"]), job
            writers = event["meta_info"]["routing"]["token_models"]
            assert writers == [NAMES[m] for m in want.writers[: len(writers)]]
    server.assert_clean()


@pytest.mark.parametrize(("model", "name"), [ASKED[0], ("demo", "entropy")])
def test_an_abort_answers_with_what_is_final(server: Server, model: str, name: str) -> None:
    job = Job(model, name, list(ALPHABET[5:25]), seed=3, length=3000)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: server.generate(**job.body(rid="long")))
        while (state := server.states()[0])["free_tokens"] > state["pool_tokens"] - 60:
            assert not asked.done()
        aborted = server.client.post("/abort_request", json={"rid": "long"}).json()
    assert aborted == {"aborted": 1}
    answer = asked.result()
    count, meta = len(answer["output_ids"]), answer["meta_info"]
    assert 0 < count < job.length
    longer = replace(job, length=count + 50).expected()
    assert 0 < meta["routing"]["hand_overs"] <= longer.hand_overs
    want = Written(
        longer.tokens[:count],
        longer.writers[:count],
        meta["routing"]["hand_overs"],
        {"type": "abort", "message": "Aborted by the client"},
    )
    answered(job, want, answer["text"], answer["output_ids"], meta)
    assert meta["prompt_tokens"] == len(job.prompt)
    server.assert_clean()


def test_samples_of_one_prompt_draw_for_themselves(server: Server) -> None:
    job = Job("demo:drafty", "drafty", list(ALPHABET[5:25]), seed=3)
    answers = server.generate(**job.body(sampling={"n": 3}))
    wants = [job.expected(sample) for sample in range(3)]
    assert len({tuple(want.tokens) for want in wants}) == 3
    for want, answer in zip(wants, answers, strict=True):
        answered(job, want, answer["text"], answer["output_ids"], answer["meta_info"])


def test_the_openai_endpoint_counts_what_is_final(server: Server, jobs: list[Job]) -> None:
    for job in jobs[:8]:
        want = job.expected()
        body = {
            "model": job.model, "prompt": job.prompt, "max_tokens": LENGTH, "temperature": 0,
            "stop": list(job.stop) or None, "logprobs": 0,
            "routing": {"seed": job.seed}, "stream": True,
            "stream_options": {"include_usage": True},
        }  # fmt: skip
        text, usage, llm_ratio, logprobs = "", None, None, 0
        with server.client.stream("POST", "/v1/completions", json=body) as response:
            for line in response.iter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line.removeprefix("data: "))
                for choice in event["choices"]:
                    text += choice["text"]
                    logprobs += len((choice["logprobs"] or {}).get("tokens", []))
                usage, llm_ratio = event.get("usage") or usage, event.get("llm_ratio", llm_ratio)
        whole = VOCABULARY.decode(want.tokens)
        assert text == (whole[: whole.index(job.stop[0])] if job.stop else whole), job
        assert usage is not None and usage["completion_tokens"] == len(want.tokens) == logprobs
        assert llm_ratio == pytest.approx(want.writers.count(1) / len(want.tokens))
