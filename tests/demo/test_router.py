"""The router of the pair as it is published: small, of this pair, and better than entropy."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from tokenrouter import Engine
from tokenrouter.calibration.prompts import question
from tokenrouter.demo.recipes import MODELS_FOLDER
from tokenrouter.demo.splits import for_thresholds
from tokenrouter.demo.task import Problem
from tokenrouter.demo.tokenizer import END_ID, build_tokenizer
from tokenrouter.demo.train_router import ROUTER
from tokenrouter.router_training.choosing import for_share, quality, ranking
from tokenrouter.router_training.collecting import features
from tokenrouter.router_training.labels import Examples
from tokenrouter.router_training.pair import prompt_ids
from tokenrouter.router_training.report import entropy
from tokenrouter.routers import checkpoint

SIZE_LIMIT = 1024 * 1024
PROBLEMS = 300


def examples(model: AutoModelForCausalLM, drawn: list[Problem]) -> Examples:
    """Every position of the right answers; its label says whether the small model is wrong."""
    prompts = prompt_ids(build_tokenizer(), [question(each.question) for each in drawn], {})
    answers = [[*problem.answer.encode(), END_ID] for problem in drawn]
    with torch.inference_mode():
        found = [features(model, *each) for each in zip(prompts, answers, strict=True)]
    whole = {name: torch.cat([each[name] for each in found]) for name in found[0]}
    right = torch.tensor([token for answer in answers for token in answer])
    return Examples(**whole, label=whole["token"] != right)


def test_the_file_is_small_and_of_this_pair() -> None:
    router = checkpoint.load(ROUTER)
    assert ROUTER.stat().st_size < SIZE_LIMIT
    assert router.small_model == "demo:small" and 0 < router.threshold < 1
    checkpoint.check_small_model(router, hidden_size=64, vocabulary=320)


def test_it_finds_what_the_small_model_does_wrong() -> None:
    """Measured on 2,000 problems: 0.99 of pairs in order, and 0.88 found at a share of 2 %."""
    model = AutoModelForCausalLM.from_pretrained(MODELS_FOLDER / "small")
    fresh = examples(model, for_thresholds(PROBLEMS))
    embedded = model.get_input_embeddings()(fresh.token.long()).detach()
    scores = checkpoint.load(ROUTER).network.probability(fresh.hidden, embedded, fresh.logits)
    assert ranking(scores, fresh.label) > 0.98
    for share in (0.02, 0.05):
        found, by_entropy = (
            quality(each, fresh.label, for_share(each, share)).recall
            for each in (scores, entropy(fresh))
        )
        assert found > 0.8 and found > by_entropy


@pytest.mark.slow
def test_the_demo_serves_it() -> None:
    """At its own threshold nearly all answers are right, at a share of about 5 %."""
    drawn = for_thresholds(24)
    prompts = [f"<|user|>{problem.question}<|end|><|assistant|>" for problem in drawn]
    with Engine(demo=True) as engine:
        answers = engine.generate(
            prompts, {"temperature": 0, "max_new_tokens": 256}, model="demo:r2r"
        )
    right = sum(answer["text"] == one.answer for answer, one in zip(answers, drawn, strict=True))
    tokens = [answer["meta_info"]["routing"]["tokens"] for answer in answers]
    large = sum(each["large"] for each in tokens)
    assert right >= 22
    assert 0.02 < large / (large + sum(each["small"] for each in tokens)) < 0.08
