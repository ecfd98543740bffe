"""Trained routers, all of one deployment, against plain loops over Hugging Face models.

The small model is the demo's, with a row for deferring as Co-LLM's have. Rules and networks are
written out here again; nothing is taken from `tokenrouter.schedulers` or `tokenrouter.routers`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.integration.deployments import demo
from tests.integration.models import DEMO
from tests.integration.reference import Answer
from tests.integration.server import Server
from tests.routers.heads import confidence, head_state
from tests.routers.official import checkpoint, probability, write

TOKENS = 261
"""Of the demo's tokenizer; its models' rows beyond are padding."""
COUNT = 20
SMALL, LARGE = 0, 1


@dataclass(frozen=True)
class Seen:
    """What the small model computes at a position."""

    hidden: torch.Tensor
    embedded: torch.Tensor
    top: torch.Tensor
    deferral: torch.Tensor


Score = Callable[[Seen], float]
Rule = Callable[[list[float]], tuple[bool, float]]
"""From the scores at all positions up to this one: whether the large model writes, and how far
from its threshold what decides is."""


class Pair:
    """Both models, float32; each position is computed from all tokens anew."""

    def __init__(self, small: Path) -> None:
        folders = (small, DEMO / "large")
        self.models = [
            AutoModelForCausalLM.from_pretrained(f, torch_dtype=torch.float32).eval()
            for f in folders
        ]

    @torch.no_grad()
    def step(self, member: int, tokens: Sequence[int]) -> tuple[int, float, Seen | None]:
        """The greedy token, its lead over the second, and what routers see of the small model."""
        model = self.models[member]
        output = model(torch.tensor([tokens]), output_hidden_states=member == SMALL)
        logits = output.logits[0, -1]
        best = logits[:TOKENS].topk(2)
        token, gap = int(best.indices[0]), float(best.values[0] - best.values[1])
        if member == LARGE:
            return token, gap, None
        embedded = model.get_input_embeddings()(best.indices[:1])
        top = logits[:TOKENS].sort(descending=True).values[None, :100]
        return token, gap, Seen(output.hidden_states[-1][:, -1], embedded, top, logits[TOKENS])

    def write(self, prompt: Sequence[int], score: Score, rule: Rule) -> Answer:
        """`COUNT` tokens, each by the small model unless ``rule`` gives it to the large one."""
        tokens, answer, scores = list(prompt), Answer(), list[float]()
        for _ in range(COUNT):
            token, gap, seen = self.step(SMALL, tokens)
            assert seen is not None
            scores.append(score(seen))
            asks, distance = rule(scores)
            answer.distance = min(answer.distance, distance)
            writer = LARGE if asks else SMALL
            if writer == LARGE:
                token, gap, _ = self.step(LARGE, tokens)
            answer.gap = min(answer.gap, gap)
            tokens.append(token)
            answer.tokens.append(token)
            answer.writers.append(writer)
        return answer


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's small model: a row for each token, and one for deferring."""
    folder = tmp_path_factory.mktemp("deferring")
    shutil.copytree(DEMO / "small", folder, dirs_exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(DEMO / "small", torch_dtype=torch.float32)
    model.resize_token_embeddings(TOKENS + 1, mean_resizing=False)
    row = torch.randn(model.config.hidden_size, generator=torch.Generator().manual_seed(8))
    model.get_output_embeddings().weight.data[TOKENS] = 0.1 * row
    model.save_pretrained(folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    defer = {**tokenizer["added_tokens"][-1], "id": TOKENS, "content": "<|defer|>"}
    tokenizer["added_tokens"].append(defer)
    path.write_text(json.dumps(tokenizer))
    return folder


@pytest.fixture(scope="module")
def pair(small: Path) -> Pair:
    return Pair(small)


@dataclass(frozen=True)
class Trained:
    """Rules by the name of their preset, and a configuration that serves them."""

    rules: dict[str, tuple[Score, Rule]]
    config: dict[str, Any]


def above(tau: float) -> Rule:
    """Each score decides alone."""
    return lambda scores: (scores[-1] >= tau, abs(scores[-1] - tau))


def rolling(tau: float) -> Rule:
    """neural_rolling with a window of 3, from the definition."""

    def rule(scores: list[float]) -> tuple[bool, float]:
        large, begun, value = True, 0, 0.0
        for i, score in enumerate(scores):
            window = scores[max(begun, i - 2) : i + 1] if large else [score]
            value = sum(window) / len(window)
            if not large:
                begun = i
            large = value >= tau
        return large, abs(value - tau)

    return rule


@pytest.fixture(scope="module")
def trained(pair: Pair, small: Path, problems: list[list[int]], tmp_path_factory: Any) -> Trained:
    """All four, at thresholds that some of the small model's scores reach."""
    folder = tmp_path_factory.mktemp("networks")
    content = checkpoint(hidden=64, logits=100, widths=(32, 32), seed=4)
    head = head_state(64, seed=5)

    def critical(seen: Seen) -> float:
        return float(probability(content, seen.hidden, seen.embedded, seen.top))

    def sure(seen: Seen) -> float:
        return float(confidence(head, seen.hidden))

    def defers(seen: Seen) -> float:
        return float(seen.deferral.sigmoid())

    seen = [
        pair.step(SMALL, prompt[:end])[2] for prompt in problems[:12] for end in (-1, -3, -9, None)
    ]

    def quantile(score: Score, q: float) -> float:
        return float(torch.tensor([score(each) for each in seen if each]).quantile(q))

    saved, of_head, of_row = quantile(critical, 0.6), quantile(sure, 0.4), quantile(defers, 0.6)
    content["common_args"]["threshold"] = saved
    write(folder / "router.pt", content)
    torch.save(head, folder / "head.pt")
    args = {"router": str(folder / "router.pt")}
    config = demo("r2r", saved, (1, 3), served_name="demo", algorithm_args=args)
    del config["router_threshold"]  # saved in the file
    config["models"][0]["model_path"] = str(small)
    config["algorithms"] = {
        "neural_rolling": {"algorithm_args": args},
        "citer": {"algorithm_args": {"head": str(folder / "head.pt")}, "router_threshold": of_head},
        "co_llm": {"router_threshold": of_row},
    }
    rules = {
        "r2r": (critical, above(saved)),
        "neural_rolling": (critical, rolling(saved)),
        "citer": (lambda seen: -sure(seen), above(-of_head)),
        "co_llm": (defers, above(of_row)),
    }
    return Trained(rules, config)


@pytest.fixture(scope="module")
def server(trained: Trained) -> Iterator[Server]:
    with Server(trained.config) as server:
        yield server


def ask(server: Server, model: str, prompt: Sequence[int]) -> Any:
    return server.generate(
        input_ids=list(prompt),
        model=model,
        sampling_params={"ignore_eos": True, "temperature": 0, "max_new_tokens": COUNT},
        routing={"token_models": True},
    )


def check(
    server: Server, trained: Trained, pair: Pair, prompts: list[list[int]], names: Sequence[str]
) -> None:
    """All prompts by all algorithms at once; compared where float noise decides nothing."""
    asked = [(name, prompt) for prompt in prompts for name in names]
    with ThreadPoolExecutor(len(asked)) as pool:
        served = list(pool.map(lambda each: ask(server, f"demo:{each[0]}", each[1]), asked))
    honest = dict.fromkeys(names, 0)
    written = {name: [0, 0] for name in names}
    for (name, prompt), answer in zip(asked, served, strict=True):
        expected = pair.write(prompt, *trained.rules[name])
        if not expected.honest:
            continue
        honest[name] += 1
        routing = answer["meta_info"]["routing"]
        assert answer["output_ids"] == expected.tokens, name
        assert routing["token_models"] == [("small", "large")[m] for m in expected.writers], name
        for member in expected.writers:
            written[name][member] += 1
    assert min(honest.values()) >= 4, honest
    assert all(min(counts) >= 8 for counts in written.values()), written
    server.assert_clean()


def test_served_together_each_equals_its_plain_loop(
    server: Server, trained: Trained, pair: Pair, problems: list[list[int]]
) -> None:
    check(server, trained, pair, problems[:6], tuple(trained.rules))


def test_a_requests_own_threshold_beats_the_saved_one(
    server: Server, problems: list[list[int]]
) -> None:
    for model, writer in (("demo@0", "large"), ("demo:neural_rolling@1", "small")):
        routing = ask(server, model, problems[0])["meta_info"]["routing"]
        assert set(routing["token_models"]) == {writer}


@pytest.mark.slow
def test_a_small_model_on_two_ranks(
    trained: Trained, pair: Pair, problems: list[list[int]]
) -> None:
    first, second = trained.config["models"]
    config = {**trained.config, "models": [{**first, "tp_size": 2}, second]}
    with Server(config) as server:
        check(server, trained, pair, problems[:6], tuple(trained.rules))


def test_deferring_by_a_model_that_was_not_made_for_it_is_refused(
    demo_server: Server, problems: list[list[int]]
) -> None:
    body = {"input_ids": problems[0], "model": "demo:co_llm"}
    answer = demo_server.client.post("/generate", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["message"].startswith("model: co_llm needs a deployment that names it")
    assert error["param"] == "model"
    body = {**body, "model": "demo", "routing": {"algorithm": "co_llm"}}
    error = demo_server.client.post("/generate", json=body).json()["error"]
    assert error["param"] == "routing.algorithm"
    demo_server.assert_clean()
