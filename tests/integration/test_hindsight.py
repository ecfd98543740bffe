"""Hindsight and query level, served by real models: equal to loops that know no runtime."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from tests.integration.deployments import cascade, demo
from tests.integration.models import DEMO, TRIO_EOS
from tests.integration.reference import MIN_DISTANCE, MIN_GAP
from tests.integration.server import Server
from tokenrouter.routers import citer
from tokenrouter.routers.citer import CiterHead
from tokenrouter.schedulers.base import Request
from tokenrouter.schedulers.registry import create

COUNT = 48
END = 260
EPSILON = 0.1
SMALL, LARGE = 0, 1
NAMES = ("small", "large")
TOLERANCE = 2e-4
HEAD_THRESHOLD = 0.5
TAU = 1.0
"""High enough for the small model to go wrong unnoticed."""
LEAST_CUTS = {"final": 2, "lazy": 1, "window": 1}
KNOWN: dict[tuple[int, ...], torch.Tensor] = {}
"""What models made of contexts: those of several loops begin alike."""
VERIFY: dict[str, dict[str, Any]] = {
    "final": {"epsilon": EPSILON, "final": True},
    "lazy": {"epsilon": EPSILON, "final": False},
    "window": {"epsilon": EPSILON, "window": 6},
}


@dataclass
class Loop:
    """The definition, a forward pass over everything at each step; margins are noted."""

    models: Sequence[Any]
    prompt: list[int]
    verify: dict[str, Any] | None
    tau: float = TAU
    stop: list[int] | None = None
    count: int = COUNT
    ends: tuple[int, ...] = (END,)
    writers: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    margin: float = float("inf")
    gap: float = float("inf")
    cuts: int = 0
    checks: int = 0

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt)
        self.verified = len(self.prompt)
        self.last = len(self.models) - 1

    def run(self) -> Loop:
        while not self.over:
            member = self.next()
            if member == self.last:
                self.look_back() or self.write(member)
                self.verified = len(self.tokens)
                continue
            self.write(member)
            if self.verify is None:
                continue
            full = len(self.tokens) - self.verified >= self.verify.get("window", self.count)
            if self.over:
                if self.verify.get("final", True) and self.look_back():
                    self.verified = len(self.tokens)
            elif full:
                self.look_back() or self.write(self.last)
                self.verified = len(self.tokens)
        return self

    def next(self) -> int:
        """Of two, the large one where the small one is unsure; of more, the first that is sure."""
        if self.last == LARGE:
            entropy = float(torch.special.entr(self.laws(SMALL)[-1].exp()).sum())
            self.note(entropy, self.tau)
            return LARGE if entropy >= self.tau else SMALL
        for member in range(self.last):
            top = float(self.laws(member)[-1].max().exp())
            self.note(top, self.tau)
            if top >= self.tau:
                return member
        return self.last

    def look_back(self) -> bool:
        if self.verify is None:
            return False
        self.checks += 1
        laws = self.laws(self.last)
        for position in range(self.verified, len(self.tokens)):
            probability = float(laws[position - 1, self.tokens[position]].exp())
            self.note(probability, EPSILON)
            if probability < EPSILON:
                output = position - len(self.prompt)
                del self.tokens[position:], self.writers[output:], self.logprobs[output:]
                self.write(self.last)
                self.cuts += 1
                return True
        return False

    def write(self, member: int) -> None:
        best = self.laws(member)[-1].topk(2)
        self.gap = min(self.gap, float(best.values[0] - best.values[1]))
        self.tokens.append(int(best.indices[0]))
        self.writers.append(member)
        self.logprobs.append(float(best.values[0]))

    def laws(self, member: int) -> torch.Tensor:
        """Log probabilities after each token."""
        key = (id(self.models[member]), *self.tokens)
        if key not in KNOWN:
            with torch.no_grad():
                logits = self.models[member](torch.tensor([self.tokens])).logits[0]
            KNOWN[key] = torch.log_softmax(logits.float(), dim=-1)
        return KNOWN[key]

    def note(self, score: float, threshold: float) -> None:
        self.margin = min(self.margin, abs(score - threshold))

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.prompt) :]

    @property
    def over(self) -> bool:
        stopped = self.stop is not None and self.output[-len(self.stop) :] == self.stop
        return (
            len(self.output) >= self.count
            or (self.output[-1:] and self.output[-1] in self.ends)
            or stopped
        )

    @property
    def honest(self) -> bool:
        return self.gap >= MIN_GAP and self.margin >= MIN_DISTANCE


@pytest.fixture(scope="module")
def problems(problems: list[list[int]]) -> list[list[int]]:
    """Fewer: the loops here compute everything again at each step."""
    return problems[12:]


@pytest.fixture(scope="module")
def models() -> list[Any]:
    folders = [DEMO / name for name in NAMES]
    load = AutoModelForCausalLM.from_pretrained
    return [load(folder, torch_dtype=torch.float32).eval() for folder in folders]


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of prompts with random weights, whose scores differ enough to choose by."""
    torch.manual_seed(0)
    network = CiterHead(AutoConfig.from_pretrained(DEMO / "small").hidden_size)
    torch.nn.init.normal_(network.linear.weight, std=3.0)
    torch.nn.init.normal_(network.mlp[1].running_mean)
    path = tmp_path_factory.mktemp("head") / "head.safetensors"
    save_file(network.state_dict(), path)
    return path


@pytest.fixture(scope="module")
def server(head: Path) -> Any:
    """Every algorithm of this file, with memory for a few requests at a time."""
    entropy = {"algorithm": "entropy", "router_threshold": TAU}
    algorithms: dict[str, Any] = {
        name: {**entropy, "algorithm_args": {"verify": verify}} for name, verify in VERIFY.items()
    }
    then = {**entropy, "algorithm_args": {"verify": VERIFY["final"]}}
    algorithms["query"] = {"router_threshold": 0.5}
    algorithms["composed"] = {
        "algorithm": "query", "router_threshold": 0.4, "algorithm_args": {"then": then},
    }  # fmt: skip
    algorithms["head"] = {
        "algorithm": "query", "router_threshold": HEAD_THRESHOLD,
        "algorithm_args": {"kind": "head", "head": str(head)},
    }  # fmt: skip
    model = {"chunked_prefill_size": 32, "max_total_tokens": 900}
    config = demo("entropy", TAU, (2, 3), model=model, algorithms=algorithms, served_name="demo")
    with Server(config) as server:
        yield server


def ask(server: Server, name: str, prompts: Sequence[list[int]], **sampling: Any) -> list[Any]:
    """Every prompt at once."""

    def one(prompt: list[int]) -> Any:
        return server.generate(
            model=f"demo:{name}",
            input_ids=prompt,
            sampling_params={"temperature": 0, "max_new_tokens": COUNT, **sampling},
            routing={"token_models": True},
            return_logprob=True,
        )

    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(one, prompts))


def assert_equal(answer: Any, loop: Loop, names: Sequence[str] = NAMES) -> None:
    meta = answer["meta_info"]
    assert answer["output_ids"] == loop.output
    assert meta["completion_tokens"] == len(loop.output)
    assert meta["routing"]["token_models"] == [names[member] for member in loop.writers]
    counts = {name: loop.writers.count(member) for member, name in enumerate(names)}
    assert meta["routing"]["tokens"] == counts
    values = [value for value, *_ in meta["output_token_logprobs"]]
    assert values == pytest.approx(loop.logprobs, abs=TOLERANCE)


@pytest.mark.parametrize("name", VERIFY)
def test_served_hindsight_is_the_definition(
    name: str, server: Server, models: list[Any], problems: list[list[int]]
) -> None:
    loops = [Loop(models, prompt, VERIFY[name]).run() for prompt in problems]
    honest = [loop.honest for loop in loops]
    assert sum(honest) >= 0.75 * len(loops), "choose other prompts: margins are too small"
    for answer, loop in zip(ask(server, name, problems), loops, strict=True):
        if loop.honest:
            assert_equal(answer, loop)
    server.assert_clean()
    assert sum(loop.cuts for loop in loops if loop.honest) >= LEAST_CUTS[name]
    assert all(len({*loop.writers}) == 2 for loop in loops if loop.cuts)


def test_streams_never_take_a_token_back(
    server: Server, models: list[Any], problems: list[list[int]]
) -> None:
    for prompt in problems[:6]:
        loop = Loop(models, prompt, VERIFY["final"]).run()
        streamed: list[int] = []
        body = {
            "model": "demo:final",
            "input_ids": prompt,
            "sampling_params": {"temperature": 0, "max_new_tokens": COUNT},
            "stream": True,
        }
        with server.client.stream("POST", "/generate", json=body) as lines:
            for line in lines.iter_lines():
                if line.startswith("data: {"):
                    streamed += json.loads(line.removeprefix("data: "))["output_ids"]
                    assert streamed == loop.output[: len(streamed)] or not loop.honest
        assert streamed == loop.output or not loop.honest
    server.assert_clean()


def test_stop_strings_end_what_is_verified(
    server: Server, models: list[Any], problems: list[list[int]], tokenizer: Any
) -> None:
    for prompt in problems[:4]:
        whole = Loop(models, prompt, VERIFY["final"]).run()
        middle = len(whole.output) // 2
        stop = whole.output[middle : middle + 2]
        loop = Loop(models, prompt, VERIFY["final"], stop=stop).run()
        (answer,) = ask(server, "final", [prompt], stop=tokenizer.decode(stop), no_stop_trim=True)
        if loop.honest:
            assert_equal(answer, loop)
            assert answer["meta_info"]["finish_reason"]["type"] == "stop"
    server.assert_clean()


def test_an_end_of_sequence_is_verified_like_any_token(
    server: Server, models: list[Any], problems: list[list[int]]
) -> None:
    loops = [Loop(models, prompt, VERIFY["final"], count=200).run() for prompt in problems[:3]]
    answers = ask(server, "final", problems[:3], max_new_tokens=200)
    for answer, loop in zip(answers, loops, strict=True):
        assert loop.output[-1] == END
        if loop.honest:
            assert_equal(answer, loop)
    assert any(loop.honest for loop in loops)
    server.assert_clean()


@pytest.mark.parametrize("name", ["query", "composed"])
def test_query_level_is_one_model_or_what_goes_on(
    name: str, server: Server, models: list[Any], problems: list[list[int]]
) -> None:
    threshold, verify = {"query": (0.5, None), "composed": (0.4, VERIFY["final"])}[name]
    choice = create("query", NAMES, threshold)
    written = set()
    for prompt, answer in zip(problems, ask(server, name, problems), strict=True):
        request = Request(prompt, len(prompt), SMALL)
        if choice.choose_members(request, "")[0] == LARGE:
            loop = Loop(models, prompt, None, tau=-1.0).run()
        elif verify is None:
            loop = Loop(models, prompt, None, tau=float("inf")).run()
        else:
            loop = Loop(models, prompt, verify).run()
        routing = answer["meta_info"]["routing"]
        written.add(frozenset(loop.writers))
        if loop.honest:
            assert answer["output_ids"] == loop.output
            assert routing["token_models"] == [NAMES[member] for member in loop.writers]
            assert routing["hand_overs"] == 0 or verify is not None
    assert frozenset({LARGE}) in written
    assert len(written) >= 2
    server.assert_clean()


def test_a_head_chooses_by_the_small_models_last_hidden_state(
    server: Server, models: list[Any], problems: list[list[int]], head: Path
) -> None:
    network = citer.load(head)
    chosen = set()
    for prompt, answer in zip(problems, ask(server, "head", problems), strict=True):
        with torch.no_grad():
            states = models[SMALL](torch.tensor([prompt]), output_hidden_states=True).hidden_states
            score = float(network(states[-1][:, -1].float())[0])
        assert abs(score - HEAD_THRESHOLD) >= MIN_DISTANCE, "choose another head"
        large = score >= HEAD_THRESHOLD
        chosen.add(large)
        loop = Loop(models, prompt, None, tau=-1.0 if large else float("inf")).run()
        if loop.honest:
            assert answer["output_ids"] == loop.output
            assert answer["meta_info"]["routing"]["hand_overs"] == large
    assert chosen == {True, False}
    server.assert_clean()


@pytest.mark.slow
def test_cascades_of_three_models(trio: dict[str, Path], texts: list[list[int]]) -> None:
    """Random weights agree on nothing: most drafts are taken back."""
    load = AutoModelForCausalLM.from_pretrained
    models = [load(folder, torch_dtype=torch.float32).eval() for folder in trio.values()]
    config = cascade(trio, (1, 2, 3), model={"max_total_tokens": 500, "chunked_prefill_size": 16})
    verify = {"verify": {"epsilon": EPSILON}}
    config |= {"algorithm_args": verify, "served_name": "demo"}
    loops = [Loop(models, text, verify["verify"], tau=0.3, ends=(*TRIO_EOS, END)) for text in texts]
    with Server(config) as server:
        answers = ask(server, "cascade", texts)
        server.assert_clean()
        assert sum(state["evictions"] for state in server.states()) > 0
    for answer, loop in zip(answers, map(Loop.run, loops), strict=True):
        if loop.honest:
            assert_equal(answer, loop, tuple(trio))
    honest = [loop for loop in loops if loop.honest]
    assert len(honest) >= 0.75 * len(loops), "choose other prompts: margins are too small"
    assert sum(loop.cuts for loop in honest) > 50
    assert {member for loop in honest for member in loop.writers} == {0, 1, 2}
